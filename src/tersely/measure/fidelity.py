"""How far a smaller model says what the FP32 model says, which shows harm long before a score does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def same_answer(agreement: NDArray[np.float64]) -> float:
    """Share of equal parts, from (equal parts, parts) per row [rows, 2]; 1.0 where there is nothing to compare.

    >>> same_answer(np.array([[3.0, 4.0], [4.0, 4.0]]))
    0.875
    """
    equal, parts = np.asarray(agreement, dtype=np.float64).sum(axis=0)
    return float(equal / parts) if parts else 1.0


def mean_abs_logit_change(
    logits: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]], axis: int | None = -1
) -> float:
    """Mean |Δ| over all logits of all features, each centred along `axis`, as softmax does not see a common shift.

    `axis` is that of the softmax: -1 over labels ([labels], [length, labels]), 0 over positions (question answering,
    [length, 2]), None for outputs that are read as they are (regression, sigmoids).

    >>> mean_abs_logit_change([np.array([1.0, 3.0])], [np.array([6.0, 8.5])])
    0.25
    """
    total, count = 0.0, 0
    for before, after in zip(logits, others, strict=True):
        if before.shape != after.shape:
            raise ValueError(f"Logits of one feature have the shapes {before.shape} and {after.shape}.")
        change = after.astype(np.float64) - before
        if axis is not None:
            change -= change.mean(axis=axis, keepdims=True)
        total, count = total + float(np.abs(change).sum()), count + change.size
    return total / count if count else 0.0
