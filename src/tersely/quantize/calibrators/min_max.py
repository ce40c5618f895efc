"""`min_max`: the plain range from the least to the greatest value; clips nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..statistics import Statistics


@dataclass(frozen=True)
class MinMax:
    """The range [min, max], with 0 inside.

    As a threshold that is max |x|: ranges here follow the values on either side whichever the calibrator, so `abs_max`
    gives the same one. PaddleNLP's `min_max` records the range and quantizes nothing.
    """

    name: ClassVar[str] = "min_max"

    def settle(self, statistics: Statistics) -> float:
        """The threshold that leaves both ends of the range where they are."""
        return statistics.largest
