"""`hist`: a quantile of the magnitudes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..statistics import Statistics


@dataclass(frozen=True)
class Hist:
    """T = the 0.9999 quantile of |x|, to within one bin of the histogram (max/4096 at most)."""

    name: ClassVar[str] = "hist"
    share: float = 0.9999

    def settle(self, statistics: Statistics) -> float:
        """The magnitude that this share of the values stays within."""
        return statistics.magnitudes().quantile(self.share) if statistics.samples else 0.0
