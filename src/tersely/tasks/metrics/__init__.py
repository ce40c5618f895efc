"""Metrics by kind of task: each table maps the name that `--metric` takes to its `Metric`."""

from .classification import CLASSIFICATION, MULTI_LABEL
from .cmrc import CMRC, answer_language
from .entities import ENTITIES, entities
from .metric import Metric
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
    "entities",
]
