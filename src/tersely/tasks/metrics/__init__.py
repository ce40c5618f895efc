"""Metrics by kind of task: each table maps the name that `--metric` takes to its `Metric`."""

from .classification import CLASSIFICATION
from .cmrc import CMRC, answer_language
from .entities import ENTITIES, detect_scheme, entities
from .metric import Metric
from .multi_label import MULTI_LABEL
from .regression import REGRESSION
from .squad import SQUAD

__all__ = [
    "CLASSIFICATION",
    "CMRC",
    "ENTITIES",
    "MULTI_LABEL",
    "REGRESSION",
    "SQUAD",
    "Metric",
    "answer_language",
    "detect_scheme",
    "entities",
]
