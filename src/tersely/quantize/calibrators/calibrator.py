"""What a calibrator is, and the range that its threshold gives."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

from ...errors import UserError
from ...quant_map import Range
from ..statistics import Statistics


class Calibrator(Protocol):
    """Chooses how much of an activation the 8 bits cover: frozen, with its settings as fields.

    `settle` reads the statistics and leaves them as they are. It gives the threshold on |x|, at most the largest
    magnitude, and 0 for a tensor that holds nothing or nothing but 0. `tersely.testing.check_calibrator` tries one.
    """

    name: ClassVar[str]

    def settle(self, statistics: Statistics) -> float:
        """The threshold on |x|: what lies beyond is clipped."""
        ...


def range_of(statistics: Statistics, threshold: float) -> Range:
    """[max(low, -threshold), min(high, threshold)] with 0 inside: a tensor of one sign wastes no codes.

    >>> import numpy as np
    >>> statistics = Statistics()
    >>> statistics.observe(np.array([[-0.25, 1, 8]], np.float32), np.array([1]))
    >>> range_of(statistics, 6.0)
    Range(low=-0.25, high=6.0)
    """
    if math.isnan(threshold) or threshold < 0:
        raise UserError(f"A calibrator's threshold must be a number from 0 up. Got {threshold}.")
    return Range(min(0.0, max(statistics.low, -threshold)), max(0.0, min(statistics.high, threshold)))
