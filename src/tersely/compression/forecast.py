"""How long the parts of a run take, guessed from what its first minutes took; the clock of the whole run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..progress import Advance, Progress
from ..strategy import PRUNE, PTQ, Plan

TABLE_EXPORTS = 6.5
"""A latency table takes as long as so many exports, each with the comparison after it (MRPC, quiet: 8 s each)."""
SHOT_EXPORTS, SCORES_EXPORTS = 7.0, 7.0
"""The same for a model that is cut and repaired, and for scores of heads and neurons."""
CANDIDATE_EXPORTS = 1.0
"""The same for the candidates of one plan, which are then scored: `CALIBRATED` of them where a plan calibrates."""
CALIBRATED = 3
TIMING = 40.0
"""Seconds to time everything at the end and to weigh the best."""


@dataclass
class Forecast:
    """Minutes of what is still to be done. `export`, `scoring`: seconds that these took for the user's model.

    `allowed`: minutes that the whole run may take, or None. `started`: by `time.monotonic`.
    """

    started: float
    export: float
    scoring: float
    allowed: float | None = None
    judged: bool = False
    """Whether everything is scored once more, on rows that judge."""
    took: dict[tuple[bool, bool], float] = field(default_factory=dict)
    """Minutes that the last rung of a kind took: pruned to order or not, trained or not."""
    has_tables: bool = False
    """Whether latency tables are there already."""

    def rung(self, plans: Sequence[Plan], speedups: int = 1) -> float:
        """Minutes of so many speed-ups, without their trainings: what the last of its kind took, else a guess."""
        kind = _kind(plans)
        if kind in self.took and not kind[1]:
            return speedups * self.took[kind]
        found = 0.0
        for plan in plans:
            scored = CALIBRATED if plan.quantizer == PTQ else 1
            found += CANDIDATE_EXPORTS * self.export + 0.5 * scored * self.scoring
        if kind[0]:
            found = speedups * (found + SHOT_EXPORTS * self.export)
            found += 0 if self.has_tables else TABLE_EXPORTS * self.export
            found += 0 if any(pruned for pruned, _ in self.took) else SCORES_EXPORTS * self.export
        return found / 60

    def ending(self, candidates: int) -> float:
        """Minutes of what comes after the last rung."""
        return ((self.scoring * candidates if self.judged else 0.0) + TIMING + candidates) / 60

    def note(self, plans: Sequence[Plan], minutes: float) -> None:
        """Learn from a rung that is done."""
        self.took[_kind(plans)] = minutes

    @property
    def spent(self) -> float:
        """Minutes since the run began."""
        return (time.monotonic() - self.started) / 60

    def left(self, candidates: int) -> float | None:
        """Minutes for further rungs; None: without a limit."""
        return None if self.allowed is None else self.allowed - self.spent - self.ending(candidates)


def _kind(plans: Sequence[Plan]) -> tuple[bool, bool]:
    return any(PRUNE in plan.steps for plan in plans), any(plan.trained for plan in plans)


@dataclass
class RunClock:
    """A `Progress` that says beside every stretch of work how long the whole run has taken and will take yet."""

    inner: Progress
    started: float
    expected: float | None = None
    """Minutes that the whole run is going to take; None: not known yet."""

    @contextmanager
    def track(self, title: str, total: int) -> Iterator[Advance]:
        """Show one stretch of work."""
        with self.inner.track(f"{self.clock()} {title}", total) as advance:
            yield advance

    def say(self, line: str) -> None:
        """Report one thing that happened."""
        self.inner.say(line)

    def clock(self) -> str:
        """Minutes of the run: spent, and expected where that is known."""
        spent = (time.monotonic() - self.started) / 60
        if self.expected is None:
            return f"[{spent:.1f} min]"
        return f"[{spent:.1f} of about {max(self.expected, spent):.0f} min]"
