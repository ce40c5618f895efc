"""What a compressed network is trained by: its teacher's hidden states and answers, and the labels (SPEC 5.3).

Every loss is a sum over a batch divided by a count that is handed in. So a step whose batch comes in several parts, or
on several processes, has the gradient of the same batch in one part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from ..errors import UserError
from ..tasks import Task
from ..tasks.sequence_classification import MULTI, REGRESSION, SINGLE
from ..tasks.task import IGNORED
from .loss_settings import Criterion
from .own_outputs import outputs_loss

TOKENS, QUESTION, OWN = "tokens", "span", "own"
Outputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Counts:
    """What a batch holds: rows, real positions (no padding), positions that carry a label."""

    rows: float
    tokens: float
    labelled: float

    @classmethod
    def of(cls, batches: Sequence[Mapping[str, Any]]) -> Counts:
        """Of all parts of a batch together."""
        rows = sum(len(batch["input_ids"]) for batch in batches)
        tokens = sum(float(mask_of(batch).sum()) for batch in batches)
        labels = [batch["labels"] for batch in batches if "labels" in batch]
        labelled = sum(float((one != IGNORED).sum()) for one in labels)
        return cls(float(rows), tokens, max(labelled, 1.0))


def kind_of(task: Task) -> str:
    """How a task's outputs are read."""
    return task.loss


def mask_of(batch: Mapping[str, Any]) -> torch.Tensor:
    """1 at real positions [rows, length]."""
    mask = batch.get("attention_mask")
    return torch.ones_like(batch["input_ids"]) if mask is None else mask


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
    errors = [functional.mse_loss(one[real].float(), two[real].float(), reduction="sum") for one, two in pairs]
    return torch.stack(errors).sum() / (tokens * student[0].shape[-1])


def logits_loss(
    student: Outputs, teacher: Outputs, kind: str, mask: torch.Tensor, counts: Counts, temperature: float = 1.0
) -> torch.Tensor:
    """Cross-entropy of the teacher's answers softened by a temperature T, times T² (Hinton et al. 2015, section 2).

    Over labels; of a question over real positions, mean of start and end; per label (sigmoid) where there can be
    several. Token classification counts real positions. A regression's is the squared difference; it has no T.
    """
    if kind == OWN:
        return outputs_loss(student, teacher, mask, counts, temperature)
    if kind == REGRESSION:
        return (student[0].float() - teacher[0].float()).square().sum() / counts.rows
    scale = temperature**2
    soft = [(one.float() / temperature, two.float() / temperature) for one, two in zip(student, teacher, strict=True)]
    if kind == MULTI:
        ((one, two),) = soft
        entropy = functional.binary_cross_entropy_with_logits(one, two.sigmoid(), reduction="none")
        return scale * entropy.mean(-1).sum() / counts.rows
    if kind == QUESTION:
        ends = [_cross_entropy(_real_only(one, mask), _real_only(two, mask)) for one, two in soft]
        return scale * torch.stack(ends).mean(0).sum() / counts.rows
    ((one, two),) = soft
    if kind == TOKENS:
        real = mask.bool()
        return scale * _cross_entropy(one[real], two[real]).sum() / counts.tokens
    return scale * _cross_entropy(one, two).sum() / counts.rows


def label_loss(
    outputs: Outputs, batch: Mapping[str, Any], kind: str, counts: Counts, criterion: Criterion | None = None
) -> torch.Tensor:
    """The task's own loss, as the model's head has it, or the user's; `counts` of ones gives the sum over rows."""
    if criterion is not None:
        both = kind == QUESTION
        if hasattr(criterion, "of_batch"):  # it knows where its labels stand
            mean: torch.Tensor = criterion.of_batch(outputs, batch)
        else:
            labels = (batch["start_positions"], batch["end_positions"]) if both else batch["labels"]
            mean = criterion(outputs if both else outputs[0], labels)
        return mean * (len(batch["input_ids"]) / counts.rows)
    if kind == OWN:
        what = "The loss of a model of your own is not known."
        raise UserError(what, hint="Give a criterion, or --importance teacher and --label_loss 0.")
    if kind == QUESTION:
        targets = (batch["start_positions"], batch["end_positions"])
        ends = [
            functional.cross_entropy(one.float(), to, reduction="sum") for one, to in zip(outputs, targets, strict=True)
        ]
        return torch.stack(ends).mean() / counts.rows
    logits, labels = outputs[0].float(), batch["labels"]
    if kind == TOKENS:
        flat = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
        return flat / counts.labelled
    if kind == SINGLE:
        return functional.cross_entropy(logits, labels, reduction="sum") / counts.rows
    if kind == REGRESSION:
        return (logits.flatten() - labels.float().flatten()).square().sum() / counts.rows
    return (
        functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none").mean(-1).sum()
        / counts.rows
    )


ONE = Counts(1.0, 1.0, 1.0)
"""What sums are divided by."""


def _cross_entropy(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    return -(teacher.softmax(-1) * student.log_softmax(-1)).sum(-1)


def _real_only(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    # Far below any logit but finite: a probability of 0 times −∞ would be NaN.
    return logits.masked_fill(mask == 0, -1e9)
