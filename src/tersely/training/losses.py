"""What a network learns from when it is compressed: its teacher's hidden states and answers, and the labels.

Every loss is a sum over a batch divided by a count that is passed in. So a step whose batch comes in several parts, or
on several processes, has the gradient of the same batch in one part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from ..errors import UserError
from ..models.folder import ModelFolder
from ..tasks import Task
from ..tasks.sequence_classification import MULTI, REGRESSION, SINGLE
from ..tasks.task import IGNORED
from .batches import LABELLED

TOKENS, QUESTION, OWN = "tokens", "span", "own"
Outputs = tuple[torch.Tensor, ...]

Augment = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From a batch (tensors by name, labels among them) to another: more rows, words replaced."""

Criterion = Callable[[Any, Any], Any]
"""From logits and labels to the batch's mean loss; of a question, both are tuples (start, end)."""


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """The losses of a training, checked, by the names of the options."""

    distill_hidden: float = 0.0
    """Weight of the teacher's hidden states."""
    distill_logits: float = 1.0
    """Weight of the teacher's answers."""
    distill_temperature: float = 1.0
    """Temperature of these answers."""
    label_loss: float = 0.0
    """Weight of the labels."""
    teacher: Path | ModelFolder | None = None
    """A model folder, or the model that this one was made of; None: the model itself as it was."""
    augment: Augment | None = None
    """Applied to each batch before teacher and student see it; from Python only."""
    criterion: Criterion | None = None
    """In the place of the task's own loss; from Python only."""

    def __post_init__(self) -> None:
        for name in ("distill_hidden", "distill_logits", "label_loss"):
            check_number(name, getattr(self, name), lambda value: value >= 0, "a number, 0 or more")
        check_number("distill_temperature", self.distill_temperature, lambda value: value > 0, "a number above 0")
        if not self.distils and not self.label_loss:
            what = "The options 'distill_hidden', 'distill_logits' and 'label_loss' are all 0: nothing would be learnt."
            raise UserError(what, hint="Set one of them above 0.")

    @property
    def distils(self) -> bool:
        """Whether there is anything to learn from the teacher; if not, training is plain fine-tuning."""
        return self.distill_hidden > 0 or self.distill_logits > 0

    def as_json(self) -> dict[str, Any]:
        """Plain types; a function by its name."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("augment", "criterion"):
            if (function := plain[name]) is not None:
                plain[name] = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
        if isinstance(self.teacher, ModelFolder):
            plain["teacher"] = self.teacher.name
        elif self.teacher is not None:
            plain["teacher"] = str(self.teacher)
        return plain


def check_number(name: str, value: Any, fits: Callable[[float], bool], expected: str) -> None:
    """Refuse what is no finite number, or does not fit."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not fits(value):
        raise UserError(f"The '{name}' option must be {expected}. Got {value!r}.")


@dataclass(frozen=True)
class Counts:
    """What a batch holds: rows, real positions (no padding), rows with labels, positions that carry a label."""

    rows: float
    tokens: float
    labelled_rows: float
    labelled: float

    @classmethod
    def of(cls, batches: Sequence[Mapping[str, Any]]) -> Counts:
        """Of all parts of a batch together."""
        rows = sum(len(batch["input_ids"]) for batch in batches)
        tokens = sum(float(mask_of(batch).sum()) for batch in batches)
        own = sum(float(labelled_of(batch).sum()) for batch in batches)
        labels = [batch["labels"][labelled_of(batch)] for batch in batches if "labels" in batch]
        return cls(float(rows), tokens, own, sum(float((part != IGNORED).sum()) for part in labels))


def kind_of(task: Task) -> str:
    """How a task's outputs are read."""
    return task.loss


def mask_of(batch: Mapping[str, Any]) -> torch.Tensor:
    """1 at real positions [rows, length]."""
    mask = batch.get("attention_mask")
    return torch.ones_like(batch["input_ids"]) if mask is None else mask


def labelled_of(batch: Mapping[str, Any]) -> torch.Tensor:
    """Which rows have labels [rows]."""
    ids = batch["input_ids"]
    known: torch.Tensor | None = batch.get(LABELLED)
    return torch.ones(len(ids), dtype=torch.bool, device=ids.device) if known is None else known


def hidden_loss(
    student: Sequence[torch.Tensor],
    teacher: Sequence[torch.Tensor],
    layers: Sequence[int],
    mask: torch.Tensor,
    tokens: float,
) -> torch.Tensor:
    """Σ over the embeddings' output and every layer's of the mean squared error at real positions.

    ℓ_emb + ℓ_hidn of DynaBERT (Hou et al. 2020), padding left out. States are [rows, length, hidden], the embeddings'
    first; `layers` are the teacher's layers that the student's come from.
    """
    real = mask.bool()
    pairs = [(student[0], teacher[0])]
    pairs += [(student[new + 1], teacher[old + 1]) for new, old in enumerate(layers)]
    errors = [functional.mse_loss(ours[real].float(), theirs[real].float(), reduction="sum") for ours, theirs in pairs]
    return torch.stack(errors).sum() / (tokens * student[0].shape[-1])


def logits_loss(
    student: Outputs, teacher: Outputs, kind: str, mask: torch.Tensor, counts: Counts, temperature: float = 1.0
) -> torch.Tensor:
    """Cross-entropy of the teacher's answers softened by a temperature T, times T² (Hinton et al. 2015, section 2).

    Over labels; of a question over real positions, mean of start and end; per label (sigmoid) where there can be
    several. Token classification counts real positions. A regression's is the squared difference; it has no T.
    """
    if kind == OWN:
        return _own_outputs_loss(student, teacher, mask, counts, temperature)
    if kind == REGRESSION:
        return (student[0].float() - teacher[0].float()).square().sum() / counts.rows
    scale = temperature**2
    pairs = zip(student, teacher, strict=True)
    soft = [(ours.float() / temperature, theirs.float() / temperature) for ours, theirs in pairs]
    if kind == MULTI:
        ((ours, theirs),) = soft
        return scale * _sigmoid_cross_entropy(ours, theirs.sigmoid()).sum() / counts.rows
    if kind == QUESTION:
        ends = [_cross_entropy(_real_only(ours, mask), _real_only(theirs, mask)) for ours, theirs in soft]
        return scale * torch.stack(ends).mean(0).sum() / counts.rows
    ((ours, theirs),) = soft
    if kind == TOKENS:
        real = mask.bool()
        return scale * _cross_entropy(ours[real], theirs[real]).sum() / counts.tokens
    return scale * _cross_entropy(ours, theirs).sum() / counts.rows


def label_loss(
    outputs: Outputs, batch: Mapping[str, Any], kind: str, counts: Counts, criterion: Criterion | None = None
) -> torch.Tensor:
    """The task's own loss, as the model's head has it, or the user's; `counts` of ones gives the sum over rows.

    Rows without labels are left out, in the mean too; where there are no others it is 0.
    """
    own = labelled_of(batch)
    if not own.any():
        return outputs[0].new_zeros(())
    if not own.all():
        outputs = tuple(output[own] for output in outputs)
        batch = {name: value[own] if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    if criterion is not None:
        both = kind == QUESTION
        if hasattr(criterion, "of_batch"):  # it knows where its labels stand
            mean: torch.Tensor = criterion.of_batch(outputs, batch)
        else:
            labels = (batch["start_positions"], batch["end_positions"]) if both else batch["labels"]
            mean = criterion(outputs if both else outputs[0], labels)
        return mean * (len(batch["input_ids"]) / counts.labelled_rows)
    if kind == OWN:
        what = "The loss of a model of your own is not known."
        raise UserError(what, hint="Give a criterion, or --importance teacher and --label_loss 0.")
    if kind == QUESTION:
        targets = (batch["start_positions"], batch["end_positions"])
        pairs = zip(outputs, targets, strict=True)
        ends = [functional.cross_entropy(end.float(), to, reduction="sum") for end, to in pairs]
        return torch.stack(ends).mean() / counts.labelled_rows
    logits, labels = outputs[0].float(), batch["labels"]
    if kind == TOKENS:
        flat = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
        return flat / (counts.labelled or 1.0)
    if kind == SINGLE:
        return functional.cross_entropy(logits, labels, reduction="sum") / counts.labelled_rows
    if kind == REGRESSION:
        return (logits.flatten() - labels.float().flatten()).square().sum() / counts.labelled_rows
    return _sigmoid_cross_entropy(logits, labels.float()).sum() / counts.labelled_rows


def _own_outputs_loss(
    student: Outputs, teacher: Outputs, mask: torch.Tensor, counts: Counts, temperature: float
) -> torch.Tensor:
    """Of a model of the user's own: the mean over its outputs of what their form suggests.

    Labels along the last axis, [rows, labels] or [rows, length, labels]: soft cross-entropy, as of a classifier. A
    number for each position, [rows, length], or one column: the squared difference, which takes logits and
    probabilities alike. Padding does not count.
    """
    real, losses = mask.bool(), []
    for ours, theirs in zip(student, teacher, strict=True):
        ours, theirs, count = ours.float(), theirs.float(), counts.rows
        if ours.shape[:2] == mask.shape:
            ours, theirs, count = ours[real], theirs[real], counts.tokens
        if ours.ndim < 2 or ours.shape[-1] == 1:
            losses.append(functional.mse_loss(ours, theirs, reduction="sum") / count)
        else:
            soft = (theirs / temperature).softmax(-1) * (ours / temperature).log_softmax(-1)
            losses.append(-(temperature**2) * soft.sum() / count)
    return torch.stack(losses).mean()


ONE = Counts(1.0, 1.0, 1.0, 1.0)
"""What sums are divided by."""


def _cross_entropy(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    return -(teacher.softmax(-1) * student.log_softmax(-1)).sum(-1)


def _sigmoid_cross_entropy(logits: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(logits, shares, reduction="none").mean(-1)


def _real_only(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    # Far below any logit but finite: a probability of 0 times −∞ would be NaN.
    return logits.masked_fill(mask == 0, -1e9)
