"""Which level each sublayer gets: the smallest sum of harms whose time fits a budget, by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

BINS = 3000
"""Steps that the budget is counted in; a sublayer's time is rounded to the nearest."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Levels:
    """What one sublayer may keep: units, rising, from 0 to all; the time and the harm of each."""

    units: tuple[int, ...]
    seconds: Array
    harm: Array

    def __post_init__(self) -> None:
        if not len(self.units) == len(self.seconds) == len(self.harm) > 0:
            raise ValueError("A sublayer has as many times and harms as levels.")


def allocate(sublayers: Sequence[Levels], budget: float) -> list[int]:
    """The units that each sublayer keeps: least harm within a budget of seconds, as exactly as `BINS` allow.

    Time that is not needed is not used up: of equal harms the quickest.

    >>> times = np.array([0.0, 1.0, 2.0])
    >>> both = [Levels((0, 1, 2), times, np.array([harm, 1.0, 0.0])) for harm in (1.5, 9.0)]
    >>> allocate(both, budget=4.0), allocate(both, budget=2.0)
    ([2, 2], [0, 2])
    """
    least = sum(float(levels.seconds.min()) for levels in sublayers)
    if least > budget:
        raise UserError(f"The layers take {least:.4g} s at least; the budget is {budget:.4g} s.")
    bin_size = max(budget, 1e-12) / BINS
    best = np.zeros(BINS + 1)
    chosen: list[NDArray[np.int64]] = []
    for levels in sublayers:
        costs = np.rint(levels.seconds / bin_size).astype(int)
        options = np.full((len(costs), BINS + 1), np.inf)
        for number, cost in enumerate(costs):
            if cost <= BINS:
                options[number, cost:] = best[: BINS + 1 - cost] + levels.harm[number]
        chosen.append(options.argmin(axis=0))
        best = options.min(axis=0)
    if not np.isfinite(best[-1]):  # the least times fit exactly, but not once rounded
        return [levels.units[int(levels.seconds.argmin())] for levels in sublayers]
    place = int(np.flatnonzero(best <= best[-1] + 1e-12)[0])
    found = []
    for levels, picks in zip(reversed(sublayers), reversed(chosen), strict=True):
        number = int(picks[place])
        found.append(levels.units[number])
        place -= round(float(levels.seconds[number]) / bin_size)
    return found[::-1]
