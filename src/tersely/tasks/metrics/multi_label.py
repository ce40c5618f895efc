"""Metrics of multi-label classification. Golds and answers are 0/1 or bool [rows, labels]."""

from __future__ import annotations

from typing import Any

import numpy as np

from .metric import Array, Metric, f1, mean, ratio, table


def _counts(golds: Any, answers: Any) -> Array:
    """(true positives, answered, gold) per row, over all labels."""
    gold, answered = np.asarray(golds, dtype=bool), np.asarray(answers, dtype=bool)
    return np.stack([(gold & answered).sum(axis=1), answered.sum(axis=1), gold.sum(axis=1)], axis=1).astype(np.float64)


def _per_label(golds: Any, answers: Any) -> Array:
    """(true positives, answered, gold), each [rows, labels], side by side."""
    gold, answered = np.asarray(golds, dtype=bool), np.asarray(answers, dtype=bool)
    return np.hstack([gold & answered, answered, gold]).astype(np.float64)


def _macro_f1(sums: Array) -> Array:
    """Mean F1 of all labels; one that never occurs counts as 0, as in scikit-learn with `zero_division=0`."""
    hits, answered, gold = np.split(sums, 3, axis=-1)
    return np.asarray(ratio(2 * hits, answered + gold).mean(axis=-1))


def _all_correct(golds: Any, answers: Any) -> Array:
    """(every label correct, 1) per row."""
    correct = (np.asarray(golds, dtype=bool) == np.asarray(answers, dtype=bool)).all(axis=1)
    return np.stack([correct, np.ones_like(correct)], axis=1).astype(np.float64)


MULTI_LABEL = table(
    Metric("micro_f1", _counts, f1),
    Metric("macro_f1", _per_label, _macro_f1),
    Metric("accuracy", _all_correct, mean),
)
