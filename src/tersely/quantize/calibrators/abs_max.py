"""`abs_max`: the largest magnitude; clips nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..statistics import Statistics


@dataclass(frozen=True)
class AbsMax:
    """T = max |x|. One outlier sets the step of all other values."""

    name: ClassVar[str] = "abs_max"

    def settle(self, statistics: Statistics) -> float:
        """The largest magnitude seen."""
        return statistics.largest
