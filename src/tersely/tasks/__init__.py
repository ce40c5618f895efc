"""Tasks: one file each; features, decode, score. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from ..errors import UserError, fill, nearest
from .encoder import Encoder, Feature
from .own import Own
from .question_answering import QuestionAnswering
from .sequence_classification import SequenceClassification
from .task import Columns, Facts, Input, InputError, Task
from .token_classification import TokenClassification

TASKS: dict[str, type[Task]] = {
    SequenceClassification.name: SequenceClassification,
    TokenClassification.name: TokenClassification,
    QuestionAnswering.name: QuestionAnswering,
    Own.name: Own,
}

__all__ = [
    "TASKS",
    "Columns",
    "Encoder",
    "Facts",
    "Feature",
    "Input",
    "InputError",
    "Own",
    "QuestionAnswering",
    "SequenceClassification",
    "Task",
    "TokenClassification",
    "facts_of",
    "from_json",
    "heads",
    "kinds",
    "settings_of",
    "task_of_class",
    "to_json",
]


def facts_of(name: str) -> Facts:
    """What is known of the task of this name.

    >>> facts_of("token_classification").pipeline_tag
    'token-classification'
    """
    return cast(Facts, TASKS[name].facts)


def heads() -> dict[str, str]:
    """Endings of the names of models' classes, behind `For`, and the task that each is for."""
    return {head: name for name in TASKS if (head := facts_of(name).head) is not None}


def task_of_class(name: str) -> str | None:
    """The task that a model's class is for, by its name; None where that does not say one.

    >>> task_of_class("ErnieForTokenClassification")
    'token_classification'
    """
    return next((task for head, task in heads().items() if name.endswith(f"For{head}")), None)


def kinds() -> dict[str, tuple[str, str | None]]:
    """What `--task` takes: the task and the kind of answer that each word stands for."""
    return {kind: (name, problem) for name in TASKS for kind, problem in facts_of(name).kinds.items()}


def settings_of(name: str) -> set[str]:
    """Names of a task's settings."""
    return {field.name for field in dataclasses.fields(cast(Any, TASKS[name]))}


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
