"""Metrics of classification: golds and answers are class numbers [rows]; of many labels flags [rows, labels]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from .metric import Array, Metric, counted, f1, mean, ratio, table


def _correct(golds: Any, answers: Any) -> Array:
    """(correct, 1) per row."""
    return counted(np.asarray(golds) == np.asarray(answers))


def _positives(golds: Any, answers: Any) -> Array:
    """(true positives, answered, gold) of class 1 per row, as GLUE scores MRPC and QQP."""
    golds, answers = np.asarray(golds), np.asarray(answers)
    highest = max(golds.max(initial=0), answers.max(initial=0))
    if highest > 1:
        what = f"The metric 'f1' is for two classes, 0 and 1. Got class {highest}."
        raise UserError(what, hint="Use 'macro_f1', 'accuracy' or 'mcc'.")
    answered, gold = answers == 1, golds == 1
    return np.stack([answered & gold, answered, gold], axis=1).astype(np.float64)


def _correct_and_positives(golds: Any, answers: Any) -> Array:
    return np.hstack([_correct(golds, answers), _positives(golds, answers)])


def _mean_and_f1(sums: Array) -> Array:
    return (mean(sums[..., :2]) + f1(sums[..., 2:])) / 2


def _per_class(golds: Any, answers: Any) -> Array:
    """One-hot (true positives, answered, gold), each [rows, classes], side by side."""
    gold, answered = _one_hot(golds, answers)
    return np.hstack([gold * answered, answered, gold])


def _macro_f1(sums: Array) -> Array:
    """Mean F1 of the classes that occur, be it as gold or as answer, in this (re)sample, as scikit-learn takes it."""
    hits, answered, gold = np.split(sums, 3, axis=-1)
    occurring = np.asarray((answered + gold) > 0)
    return ratio(ratio(2 * hits, answered + gold).sum(axis=-1), occurring.sum(axis=-1).astype(np.float64))


def _correct_and_classes(golds: Any, answers: Any) -> Array:
    """(correct, one-hot answered, one-hot gold) per row."""
    gold, answered = _one_hot(golds, answers)
    return np.hstack([(gold * answered).sum(axis=1, keepdims=True), answered, gold])


def _mcc(sums: Array) -> Array:
    """R_K of Gorodkin 2004, 'Comparing two K-category assignments…'; for two classes it is Matthews' coefficient."""
    correct, (answered, gold) = sums[..., 0], np.split(sums[..., 1:], 2, axis=-1)
    rows = gold.sum(axis=-1)
    together = correct * rows - (answered * gold).sum(axis=-1)
    apart = (rows**2 - (answered**2).sum(axis=-1)) * (rows**2 - (gold**2).sum(axis=-1))
    return ratio(together, np.sqrt(apart))


def _one_hot(golds: Any, answers: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Golds and answers, both [rows, classes]; there are as many classes as the highest number asks for."""
    golds, answers = np.asarray(golds), np.asarray(answers)
    classes = np.arange(1 + max(golds.max(initial=0), answers.max(initial=0)))
    return (golds[:, None] == classes).astype(np.float64), (answers[:, None] == classes).astype(np.float64)


def _counts(golds: Any, answers: Any) -> Array:
    """(true positives, answered, gold) per row, over all labels."""
    gold, answered = _flags(golds, answers)
    return np.stack([(gold & answered).sum(axis=1), answered.sum(axis=1), gold.sum(axis=1)], axis=1).astype(np.float64)


def _per_label(golds: Any, answers: Any) -> Array:
    """(true positives, answered, gold), each [rows, labels], side by side."""
    gold, answered = _flags(golds, answers)
    return np.hstack([gold & answered, answered, gold]).astype(np.float64)


def _macro_f1_of_all(sums: Array) -> Array:
    """Mean F1 of all labels; one that never occurs counts as 0, as in scikit-learn with `zero_division=0`."""
    hits, answered, gold = np.split(sums, 3, axis=-1)
    return np.asarray(ratio(2 * hits, answered + gold).mean(axis=-1))


def _all_correct(golds: Any, answers: Any) -> Array:
    """(every label correct, 1) per row."""
    gold, answered = _flags(golds, answers)
    return counted((gold == answered).all(axis=1))


def _flags(golds: Any, answers: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    return np.asarray(golds, dtype=bool), np.asarray(answers, dtype=bool)


CLASSIFICATION = table(
    Metric("accuracy", _correct, mean),
    Metric("f1", _positives, f1),
    Metric("acc_and_f1", _correct_and_positives, _mean_and_f1),
    Metric("macro_f1", _per_class, _macro_f1),
    Metric("mcc", _correct_and_classes, _mcc, bounds=(-1.0, 1.0)),
)
MULTI_LABEL = table(
    Metric("micro_f1", _counts, f1),
    Metric("macro_f1", _per_label, _macro_f1_of_all),
    Metric("accuracy", _all_correct, mean),
)
