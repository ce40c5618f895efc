"""The candidates that no other beats: in score, speed and size at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .choice import ROUNDING, STEP


@dataclass(frozen=True)
class Standing:
    """Where a candidate stands. `score`: the more the better; None: not measured. `speed`: times FP32's."""

    name: str
    score: float | None
    speed: float | None
    size: int


def pareto(candidates: Sequence[Standing]) -> tuple[str, ...]:
    """Names of those of which no other is as good in all three and better in one.

    Speeds within a step of 5 % are equal, as where the best is chosen: timings do not tell them apart.

    >>> slow, fast = Standing("slow", 0.9, 1.0, 20), Standing("fast", 0.9, 2.0, 20)
    >>> pareto([slow, fast, Standing("small", 0.8, 1.5, 10)])
    ('fast', 'small')
    """
    return tuple(one.name for one in candidates if not any(_beats(other, one) for other in candidates))


def _beats(one: Standing, other: Standing) -> bool:
    faster = (one.speed or 0.0) > STEP * (other.speed or 0.0) + ROUNDING
    slower = (other.speed or 0.0) > STEP * (one.speed or 0.0) + ROUNDING
    ahead = (one.score or 0.0) - (other.score or 0.0)
    if slower or ahead < -ROUNDING or one.size > other.size:
        return False
    return faster or ahead > ROUNDING or one.size < other.size
