"""`Metric`: as a rule a function of sums over rows, so that any resampling of rows is one matrix product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
OfSystem = Callable[[Any, Sequence[Any], Sequence[Any]], Mapping[str, float]]
"""Metrics by name, of an engine that gave these logits, one for each example: `f(engine, examples, logits)`."""


def _no_statistics(*_: Any) -> NoReturn:
    raise ValueError("The metric has no statistics of rows.")


@dataclass(frozen=True)
class Metric:
    """`rows(golds, answers)` gives statistics [rows, k]; `value` takes their sums [..., k] and gives scores [...].

    Scores are fractions within `bounds`. `greater_is_better` is False for errors. A metric that is no function of sums
    over rows, such as the user's own, has no statistics; `of_system` gives its number, and others, all by name.
    """

    name: str
    rows: Callable[[Any, Any], Array]
    value: Callable[[Array], Array]
    greater_is_better: bool = True
    bounds: tuple[float, float] = (0.0, 1.0)
    of_system: OfSystem | None = None

    @classmethod
    def without_statistics(cls, name: str, of_system: OfSystem, greater_is_better: bool = True) -> Metric:
        """A metric that is no function of sums over rows."""
        return cls(name, _no_statistics, _no_statistics, greater_is_better, (-np.inf, np.inf), of_system)

    @property
    def has_statistics(self) -> bool:
        """Whether rows have statistics, so that they can be drawn again for an interval."""
        return self.of_system is None

    def score(self, golds: Any, answers: Any) -> float:
        """Score all rows at once."""
        return float(self.value(self.rows(golds, answers).sum(axis=0)))


def table(*metrics: Metric) -> Mapping[str, Metric]:
    """Metrics by their names, in the order given."""
    return {metric.name: metric for metric in metrics}


def counted(values: Any) -> Array:
    """Statistics (value, 1) per row, of which `mean` is the score.

    >>> counted([True, False])
    array([[1., 1.],
           [0., 1.]])
    """
    return np.stack([np.asarray(values, dtype=np.float64), np.ones(len(values))], axis=1)


def ratio(numerator: Array, denominator: Array) -> Array:
    """Divide; where the denominator is 0 the answer is 0, as in scikit-learn and seqeval.

    >>> ratio(np.array([1.0, 1.0]), np.array([2.0, 0.0]))
    array([0.5, 0. ])
    """
    empty = denominator == 0
    return np.where(empty, 0.0, numerator / np.where(empty, 1.0, denominator))


def mean(sums: Array) -> Array:
    """Mean, from sums of (value, 1) [..., 2]."""
    return ratio(sums[..., 0], sums[..., 1])


def f1(sums: Array) -> Array:
    """F1, from sums of (true positives, answered, gold) [..., 3]."""
    return ratio(2 * sums[..., 0], sums[..., 1] + sums[..., 2])
