"""`Metric`: a score that is a function of sums over rows, so that any resampling of rows is one matrix product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """`rows(golds, answers)` gives statistics [rows, k]; `value` takes their sums [..., k] and gives scores [...].

    Scores are fractions. `greater_is_better` is False for errors.
    """

    name: str
    rows: Callable[[Any, Any], Array]
    value: Callable[[Array], Array]
    greater_is_better: bool = True

    def score(self, golds: Any, answers: Any) -> float:
        """Score all rows at once."""
        return float(self.value(self.rows(golds, answers).sum(axis=0)))
