"""Options of tasks that several commands share: names, types, help. A field left at None was not set."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from ..errors import UserError, nearest, wrong_option
from . import kinds


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
