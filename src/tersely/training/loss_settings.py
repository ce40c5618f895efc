"""What a trained network learns from, checked: weights of the teacher's states and answers, and of the labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..errors import UserError
from ..models.folder import ModelFolder

Augment = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From a batch (tensors by name, labels among them) to another: more rows, words replaced."""

Criterion = Callable[[Any, Any], Any]
"""From logits and labels to the batch's mean loss; of a question, both are tuples (start, end)."""


class LossSettings(Protocol):
    """The losses of a training, by the names of the options."""

    @property
    def distill_hidden(self) -> float:
        """Weight of the teacher's hidden states."""

    @property
    def distill_logits(self) -> float:
        """Weight of the teacher's answers."""

    @property
    def distill_temperature(self) -> float:
        """Temperature of these answers."""

    @property
    def label_loss(self) -> float:
        """Weight of the labels."""

    @property
    def teacher(self) -> Path | ModelFolder | None:
        """A folder that the user named, or the model that this one was made of; None: the model itself as it was."""

    @property
    def augment(self) -> Augment | None:
        """What is done to a batch before teacher and student see it."""

    @property
    def criterion(self) -> Criterion | None:
        """In the place of the task's own loss."""

    @property
    def distils(self) -> bool:
        """Whether there is anything to learn from the teacher."""


def check_losses(settings: LossSettings) -> None:
    """Refuse weights that cannot be, and a training that would learn nothing."""
    for name in ("distill_hidden", "distill_logits", "label_loss"):
        check_number(name, getattr(settings, name), lambda value: value >= 0, "a number, 0 or more")
    check_number("distill_temperature", settings.distill_temperature, lambda value: value > 0, "a number above 0")
    if settings.distill_hidden == settings.distill_logits == settings.label_loss == 0:
        what = "The options 'distill_hidden', 'distill_logits' and 'label_loss' are all 0: nothing would be learnt."
        raise UserError(what, hint="Set one of them above 0.")


def check_number(name: str, value: Any, fits: Callable[[float], bool], expected: str) -> None:
    """Refuse what is no finite number, or does not fit."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not fits(value):
        raise UserError(f"The '{name}' option must be {expected}. Got {value!r}.")


def function_name(given: Callable[..., Any] | None) -> str | None:
    """How a function is told of in plain types."""
    return given and f"{given.__module__}.{getattr(given, '__qualname__', type(given).__qualname__)}"


def teacher_name(teacher: Path | ModelFolder | None) -> str | None:
    """How a teacher is told of in plain types: a model in memory lies in a folder of a moment."""
    if isinstance(teacher, ModelFolder):
        return teacher.name
    return None if teacher is None else str(teacher)
