"""Tasks: one file each; features, decode, score. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import UserError, nearest
from ..typed import fill
from .encoder import Encoder
from .own import Own
from .question_answering import QuestionAnswering
from .sequence_classification import SequenceClassification
from .task import Columns, Feature, InputError, Task
from .token_classification import TokenClassification

TASKS: Mapping[str, type[SequenceClassification] | type[TokenClassification] | type[QuestionAnswering] | type[Own]] = {
    task.name: task for task in (SequenceClassification, TokenClassification, QuestionAnswering, Own)
}

__all__ = [
    "TASKS",
    "Columns",
    "Encoder",
    "Feature",
    "InputError",
    "Own",
    "QuestionAnswering",
    "SequenceClassification",
    "Task",
    "TokenClassification",
    "from_json",
    "to_json",
]


def to_json(task: Task) -> dict[str, Any]:
    """Write a task and its settings in plain types; one that stands for another (`shipped`) as that one.

    >>> to_json(SequenceClassification(("no", "yes")))["labels"]
    ['no', 'yes']
    """
    task = getattr(task, "shipped", task)
    fields = dataclasses.asdict(task)  # type: ignore[arg-type]
    return {"name": task.name, **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}}


def from_json(settings: Mapping[str, Any]) -> Task:
    """Make the task that `to_json` wrote, its settings checked."""
    fields = dict(settings)
    name = fields.pop("name", None)
    if not isinstance(name, str) or name not in TASKS:
        raise UserError(f"There is no task '{name}'.", hint=nearest(str(name), TASKS))
    task: Task = fill(TASKS[name], fields, f"The task '{name}'")
    if task.metric not in task.metrics:
        hint = nearest(task.metric, task.metrics)
        raise UserError(f"The metric '{task.metric}' does not fit {name} with this model.", hint=hint)
    return task
