"""What a calibrator is, the range that its threshold gives, and the search that two of them share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...quant_map import Range
from ..statistics import Distribution, Statistics

Floats = NDArray[np.float64]

SHARES = np.arange(15, 51) / 50  # 0.30, 0.32 … 1.00


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


def least_error(statistics: Statistics, error: Callable[[Distribution, Floats], Floats]) -> float:
    """The threshold whose 256 codes give the least summed error over all values.

    `error` takes the distribution and the numbers that the codes stand for [thresholds, 256] and gives sums
    [thresholds]. Of equals the widest wins. The sums are exact for values spread evenly within the histogram's bins,
    from the moments up to the borders between codes: 2 ms per tensor.
    """
    if statistics.largest == 0:
        return 0.0
    thresholds = SHARES[::-1] * statistics.largest
    codes = np.stack([_codes(statistics, float(threshold)) for threshold in thresholds])
    return float(thresholds[np.argmin(error(statistics.values(), codes))])


def between(codes: Floats) -> Floats:
    """The borders [thresholds, 255] at which rounding goes from one code to the next."""
    return (codes[:, 1:] + codes[:, :-1]) / 2


def sums_between(distribution: Distribution, borders: Floats) -> Floats:
    """Sums [3, thresholds, borders + 1] of 1, x and x² over the values x between neighbouring borders."""
    ends = np.array([[-np.inf], [np.inf]])
    low, high = (np.broadcast_to(end, (len(borders), 1)) for end in ends)
    points = np.concatenate([low, borders, high], axis=1)
    return np.diff(distribution.moments(points), axis=2)


def _codes(statistics: Statistics, threshold: float) -> Floats:
    step, zero = range_of(statistics, threshold).unsigned()
    return np.asarray((np.arange(256) - zero) * float(step))
