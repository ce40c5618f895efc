"""The tasks by name: the table, what is known of each, one made from its settings, and the options that set them.

Several commands share `TaskOptions`. A field left at None was not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, cast

from ..errors import UserError, fill, nearest, wrong_option
from .own import Own
from .question_answering import QuestionAnswering
from .sequence_classification import SequenceClassification
from .task import Facts, Task
from .token_classification import TokenClassification

TASKS: dict[str, type[Task]] = {
    SequenceClassification.name: SequenceClassification,
    TokenClassification.name: TokenClassification,
    QuestionAnswering.name: QuestionAnswering,
    Own.name: Own,
}


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
    return {field.name for field in fields(cast(Any, TASKS[name]))}


def to_json(task: Task) -> dict[str, Any]:
    """Write a task and its settings in plain types; one that stands for another (`shipped`) as that one.

    >>> to_json(SequenceClassification(("no", "yes")))["labels"]
    ['no', 'yes']
    """
    task = getattr(task, "shipped", task)
    fields = asdict(task)  # type: ignore[arg-type]
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


def option(help: str, default: Any = None, **more: Any) -> Any:
    """Declare an option as a field. What may stand in `more` is said by `tersely.options.option.Option`."""
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True)
class TaskOptions:
    """How rows become features and logits become a score. What is not set comes with the model."""

    task: str | None = option(f"{', '.join(kinds())} (read from the model where it can be)")
    metric: str | None = option("the number that chooses; the task's own unless set")
    max_seq_length: int | None = option("tokens a sequence may have (128; question answering 384)", least=1)
    doc_stride: int | None = option(
        "tokens that two windows of one context share (128, at most half of the room)", least=0
    )
    n_best_size: int | None = option("starts and ends to look at for an answer (20)", least=1)
    max_answer_length: int | None = option("tokens an answer may have (30)", least=1)
    max_query_length: int | None = option("tokens a question may have (64)", least=1)
    null_score_diff_threshold: float | None = option("how much better 'no answer' must be to be given (0)")
    no_answer: bool | None = option("questions may have no answer, as in SQuAD 2")
    answer_language: Literal["auto", "en", "zh"] | None = option("auto, en (SQuAD's rule) or zh (CMRC 2018's rule)")

    def __post_init__(self) -> None:
        if self.task is not None and self.task not in kinds():
            raise UserError(
                f"There is no task '{self.task}' (option '--task').", hint=nearest(self.task, kinds()), option="task"
            )
        for declared in fields(self):
            value, least = getattr(self, declared.name), declared.metadata.get("least")
            if value is not None and least is not None and value < least:
                raise wrong_option(declared.name, f"must be at least {least}. Got {value}.")
        if self.answer_language not in (None, "auto", "en", "zh"):
            raise wrong_option("answer_language", f"is auto, en or zh. Got '{self.answer_language}'.")

    def chosen(self) -> dict[str, Any]:
        """The settings that were given, without `task`."""
        return {name: value for name, value in asdict(self).items() if value is not None and name != "task"}
