"""What was measured: the FP32 model, a candidate beside it, and both on rows that chose nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..measure.score import Answers, Comparison, Score
from . import choice
from .candidate import Candidate


@dataclass(frozen=True)
class Baseline:
    """The FP32 model: its score, its size in bytes; by batch size its fastest engine and that one's seconds."""

    score: Score | None
    answers: Answers = field(repr=False)
    size: int
    engines: dict[int, str] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    memory_mb: float | None = None


@dataclass(frozen=True)
class Measured:
    """A candidate and what was measured of it. `speed` by batch size: × the fastest FP32 engine, with the spread.

    `emulated`: its graph is not for this machine's CPU class, and was scored with exact sums in floats.
    """

    candidate: Candidate
    engine: str
    answers: Answers = field(repr=False)
    score: Score | None
    comparison: Comparison
    size: int
    emulated: bool = False
    speed: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    evaluation: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Seconds to answer the rows with FP32 and with this, by threads; for dynamic alone."""
    memory_mb: float | None = None
    folder_size: int = 0
    sign: int = 1
    """-1 where a smaller score is the better one."""

    @property
    def name(self) -> str:
        """The candidate's."""
        return self.candidate.name

    def contender(self) -> choice.Contender:
        """What choosing looks at."""
        ratios = [ratio for ratio, _, _ in self.speed.values()]
        speed = math.prod(ratios) ** (1 / len(ratios)) if ratios else None
        compared = self.comparison
        change = compared.mean_abs_logit_change or 0.0
        statistics = None if self.score is None else self.score.statistics
        of_whole = None if self.score is None or statistics is not None else self.sign * self.score.value
        told = (self.name, self.size, compared.same_answer, speed, change)
        return choice.Contender(*told, statistics, of_whole)


@dataclass(frozen=True)
class Tested:
    """FP32 and the best on rows that chose nothing."""

    fp32: Score
    best: Score
    comparison: Comparison
