"""What a smaller network learns of its teacher's outputs where nobody knows what these mean: a model of the user's."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def outputs_loss(
    student: tuple[torch.Tensor, ...],
    teacher: tuple[torch.Tensor, ...],
    mask: torch.Tensor,
    counts: Any,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Mean over the outputs of what their form suggests.

    Labels along the last axis, [rows, labels] or [rows, length, labels]: soft cross-entropy, as of a classifier. A
    number for each position, [rows, length], or one column: the squared difference, which takes logits and
    probabilities alike. Padding does not count.
    """
    return torch.stack([_loss(*pair, mask, counts, temperature) for pair in zip(student, teacher, strict=True)]).mean()


def _loss(one: torch.Tensor, two: torch.Tensor, mask: torch.Tensor, counts: Any, temperature: float) -> torch.Tensor:
    one, two, real = one.float(), two.float(), mask.bool()
    a_piece = one.shape[:2] == mask.shape
    count = counts.tokens if a_piece else counts.rows
    if a_piece:
        one, two = one[real], two[real]
    if one.ndim < 2 or one.shape[-1] == 1:
        return functional.mse_loss(one, two, reduction="sum") / count
    soft = (two / temperature).softmax(-1) * (one / temperature).log_softmax(-1)
    return -(temperature**2) * soft.sum() / count
