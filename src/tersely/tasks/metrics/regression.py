"""Metrics of regression. Golds and answers are floats [rows]."""

from __future__ import annotations

from typing import Any

import numpy as np

from .metric import Array, Metric, counted, mean, ratio, table

# Below this share of the raw second moment a variance is rounding error: the resample is constant.
ROUNDING = 1e-13


def _moments(golds: Any, answers: Any) -> Array:
    """(1, x, y, x², y², xy) per row.

    Taken about the medians: correlation does not see the shift, sums of squares lose no digits to a large mean, and
    constant values give exact zeros.
    """
    x, y = np.asarray(golds, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if len(x):
        x, y = x - np.median(x), y - np.median(y)
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def _rank_moments(golds: Any, answers: Any) -> Array:
    """Moments of the ranks. These are taken once, over the full sample; a resample does not rank anew.

    On the full sample this is Spearman's coefficient exactly. In a resample it differs by the rank ties that drawing
    a row twice would make; the tests hold the interval within 0.015 of one that ranks anew (300 rows).
    """
    return _moments(_ranks(np.asarray(golds)), _ranks(np.asarray(answers)))


def _ranks(values: Any) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place], dtype=np.float64)


def _correlation(sums: Array) -> Array:
    rows, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    var_x, var_y = xx - ratio(x * x, rows), yy - ratio(y * y, rows)
    var_x, var_y = np.where(var_x > ROUNDING * xx, var_x, 0.0), np.where(var_y > ROUNDING * yy, var_y, 0.0)
    return np.clip(ratio(xy - ratio(x * y, rows), np.sqrt(var_x) * np.sqrt(var_y)), -1.0, 1.0)


def _squared_errors(golds: Any, answers: Any) -> Array:
    """(squared error, 1) per row."""
    return counted((np.asarray(golds, dtype=np.float64) - np.asarray(answers, dtype=np.float64)) ** 2)


REGRESSION = table(
    Metric("pearson", _moments, _correlation, bounds=(-1.0, 1.0)),
    Metric("spearman", _rank_moments, _correlation, bounds=(-1.0, 1.0)),
    Metric("mse", _squared_errors, mean, greater_is_better=False, bounds=(0.0, np.inf)),
)
