"""What a way of scoring says of heads and neurons: which go first, and what it costs when some are gone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..models.carve import Places
from ..models.carve.places import HEADS
from ..models.carve.shape import neuron_step
from .importance import Importance


@dataclass(frozen=True)
class Scores:
    """By (unit, block): the importance that orders units, most important first; the harm of each level."""

    method: str
    importance: Importance
    harms: dict[tuple[str, int], NDArray[np.float64]] = field(repr=False)


def agreed(first: Scores, second: Scores) -> Scores:
    """The first one's order of units, and the geometric mean of both harms."""
    harms = {key: np.sqrt(harm * second.harms[key]) for key, harm in first.harms.items()}
    return Scores(f"{first.method} and {second.method}", first.importance, harms)


def level_units(unit: str, block: int, places: Places) -> tuple[int, ...]:
    """How many heads or neurons a layer may keep, rising, from none to all.

    All of them is a level whether or not it is a multiple of the step.
    """
    count = places.count(unit, block)
    step = 1 if unit == HEADS else neuron_step(count)
    return (*range(0, count, step), count)
