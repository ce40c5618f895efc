"""The `parameters` of a request: which there are for a task, and the task with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import nearest
from ..tasks import QuestionAnswering, SequenceClassification, Task, TokenClassification
from .limits import Refusal, shown
from .models import Model

ANY_LENGTH = 8192
"""The longest sequence to be asked for from a model that has no table of positions."""


@dataclass(frozen=True)
class Parameters:
    """What a request may set; None is the artifact's own. `batch_size` is taken and passed over: see `batching`."""

    max_seq_len: int | None = None
    batch_size: int | None = None
    doc_stride: int | None = None
    prob_limit: float = 0.5
    is_split_into_words: bool = False
    all_scores: bool = False

    def task(self, task: Task) -> Task:
        """The task with what was asked for; the very same object where nothing was."""
        changes: dict[str, Any] = {}
        if self.max_seq_len not in (None, task.max_seq_length):
            changes["max_seq_length"] = self.max_seq_len
        if self.doc_stride is not None:
            changes["doc_stride"] = self.doc_stride
        return dataclasses.replace(task, **changes) if changes else task  # type: ignore[type-var]


DEFAULT = Parameters()


def offered(model: Model) -> dict[str, dict[str, Any]]:
    """JSON schemas of the parameters that a model takes, by name."""
    task = model.task
    least = shortest(model)
    most = model.longest or max(ANY_LENGTH, task.max_seq_length)
    schemas: dict[str, dict[str, Any]] = {
        "max_seq_len": {"type": "integer", "minimum": least, "maximum": max(most, least)},
        "batch_size": {"type": "integer", "minimum": 1},
    }
    if isinstance(task, QuestionAnswering):
        schemas["doc_stride"] = {"type": "integer", "minimum": 1}
    if isinstance(task, TokenClassification):
        schemas["is_split_into_words"] = {"type": "boolean"}
    if isinstance(task, SequenceClassification) and task.problem != "regression":
        schemas["all_scores"] = {"type": "boolean"}
        if task.problem == "multi_label_classification":
            schemas["prob_limit"] = {"type": "number", "minimum": 0, "maximum": 1}
    return schemas


def shortest(model: Model) -> int:
    """The fewest pieces that hold the special tokens and a piece of each text."""
    encoder = model.predictor.encoder
    frame = encoder.single if isinstance(model.task, TokenClassification) else encoder.pair
    return frame.width + (2 if isinstance(model.task, QuestionAnswering) else 1)


def read_parameters(content: Any, schemas: Mapping[str, Mapping[str, Any]]) -> Parameters:
    """Check what came against the schemas; null, and no parameters at all, are the defaults."""
    if content is None or content == {}:
        return DEFAULT
    if not isinstance(content, dict):
        raise Refusal(422, f"'parameters' must be an object. Got {shown(content)}.")
    for name, value in content.items():
        if name not in schemas:
            raise Refusal(422, f"There is no parameter '{name[:60]}'. {nearest(name[:60], schemas)}")
        _check(name, value, schemas[name])
    return Parameters(**content)


_KINDS = {"integer": (int,), "number": (int, float), "boolean": (bool,)}
_WORDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}


def _check(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    kind = schema["type"]
    if type(value) not in _KINDS[kind]:
        raise Refusal(422, f"The parameter '{name}' must be {_WORDS[kind]}. Got {shown(value)}.")
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise Refusal(422, f"The parameter '{name}' must be {bounds}.")
