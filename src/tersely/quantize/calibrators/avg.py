"""`avg`: the largest magnitude of an average sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..statistics import Statistics


@dataclass(frozen=True)
class Avg:
    """T = mean over samples of the sample's max |x|, so that one odd sample moves it little."""

    name: ClassVar[str] = "avg"

    def settle(self, statistics: Statistics) -> float:
        """The mean of the samples' largest magnitudes."""
        return min(statistics.mean_max, statistics.largest)  # a mean of equal numbers may round above them
