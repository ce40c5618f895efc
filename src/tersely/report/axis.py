"""Axes: a range with room at its ends, and round numbers along it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` on pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers, at most so many.

        >>> Axis(0.4, 3.3, 0, 100).ticks()
        [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
        """
        rough = (self.high - self.low) / most
        scale = 10.0 ** math.floor(math.log10(rough))
        step = next(one * scale for one in STEPS if one * scale >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        found = [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [round(value, 10) for value in found]


def axis(values: Sequence[float], start: float, end: float, *, narrowest: float, room: float = 0.12) -> Axis:
    """An axis for values, with room at both ends and at least so much from end to end."""
    low, high = min(values), max(values)
    lacking = max(0.0, narrowest - (high - low)) / 2
    low, high = low - lacking, high + lacking
    more = room * (high - low)
    return Axis(low - more, high + more, start, end)
