"""Candidates of a run, rung by rung: all that was asked for at once, or cheapest first until the score would fall."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt

from ..strategy import PRUNE, QAT, Plan
from .candidate import Candidate
from .choice import Measured
from .evaluator import Evaluator
from .make_candidates import CandidateMaker, equal
from .make_parents import ParentMaker
from .parents import Parent, RunContext

LIMIT = 0.01
"""The largest drop that is looked for where none was named: one point."""
RISE = 1.35
"""How many times faster each rung of the search is than the one before."""
NEAR = 1.1
"""Speed-ups that are this close are not told apart any more."""
NEAREST = 0.9
"""Share of the speed without any layer that is looked for at most."""


@dataclass(frozen=True)
class Rung:
    """What was tried together: the plans, for which speed-up, what came of it, and how long it took."""

    title: str
    names: tuple[str, ...]
    minutes: float


@dataclass
class Ladder:
    """Makes and measures. `parents`, `same`: as they grow; `rungs`: what was tried; `not_tried`: what time left out."""

    models: ParentMaker
    maker: CandidateMaker
    evaluator: Evaluator
    run: RunContext
    started: float
    parents: list[Parent] = field(default_factory=list)
    same: dict[str, str] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    rungs: list[Rung] = field(default_factory=list)
    not_tried: list[str] = field(default_factory=list)

    def climb(self) -> list[Measured]:
        """Everything that was asked for, measured on the rows of the search."""
        options, plans = self.run.options, self.run.plans
        if options.is_auto:
            self._climb_by_itself(plans)
        elif options.searches:
            self._try([plan for plan in plans if PRUNE not in plan.steps])
            self._rise([plan for plan in plans if PRUNE in plan.steps])
        else:
            self._try(plans, options.target_speedup or ())
            self._search_more()
        return self.measured

    @property
    def limit(self) -> float:
        """The largest drop that is allowed."""
        return LIMIT if self.run.options.max_drop is None else self.run.options.max_drop

    def _climb_by_itself(self, plans: Sequence[Plan]) -> None:
        plain = [plan for plan in plans if not plan.pruning and not plan.trained]
        pruned = [plan for plan in plans if PRUNE in plan.steps and not plan.trained]
        distilled = [plan for plan in plans if PRUNE in plan.steps and plan.trained]
        self._try(plain)
        holds = self._holds(self.measured)
        if not holds:
            self._search_more()
        failed = self._rise(pruned) if pruned else []
        if distilled and failed:
            self._try(distilled, failed[:1])
        if not self._holds(self.measured):
            self._try([plan for plan in plans if plan.quantizer == QAT and not plan.pruning])

    def _rise(self, plans: Sequence[Plan]) -> list[float]:
        """Try rising speed-ups until the drop is above the limit, then between; gives those that failed, slowest first.

        Of speed-ups that were asked for every one is tried.
        """
        targets = self.run.options.target_speedup
        if targets:
            failed = []
            for target in sorted(targets):
                found = self._try(plans, [target])
                if found is not None and not self._holds(found):
                    failed.append(target)
            return failed
        low, most = self.models.speed_range(plans[0])
        high: float | None = None
        failed = []
        target = low * RISE
        while target <= NEAREST * most:
            found = self._try(plans, [_rounded(target)])
            if found is None:
                break
            if self._holds(found):
                low = target
            else:
                high = target
                failed.append(_rounded(target))
            if high is not None and high / low < NEAR * sqrt(RISE):
                break
            target = low * RISE if high is None else sqrt(low * high)
        return sorted(failed)

    def _try(self, plans: Sequence[Plan], targets: Sequence[float] = ()) -> list[Measured] | None:
        """Make and measure what plans ask for; None where there is no time for it."""
        if not plans:
            return []
        title = " and ".join(plan.name for plan in plans)
        title += f" at {' and '.join(f'{one:g}' for one in targets)} ×" if targets else ""
        if self._is_late(plans):
            self.not_tried.append(title)
            return None
        began = time.monotonic()
        if self.run.options.searches or self.run.options.is_auto:
            self.run.progress.say(f"{self._clock()}{title}")
        parents = self.models.make(plans, targets)
        candidates, same = self.maker.make_all(parents)
        found = self.evaluator.measure_all(candidates)
        self.parents += parents
        self.same |= same
        self.measured += found
        names = tuple(one.name for one in found)
        self.rungs.append(Rung(title, names, (time.monotonic() - began) / 60))
        return found

    def _search_more(self) -> None:
        """More rows, then layers left float, while no candidate keeps to `max_drop`."""
        if self.run.options.max_drop is None:
            return
        began, names = time.monotonic(), []
        more = self.maker.make_more(self.parents, [one.candidate for one in self.measured])
        while not self._holds(self.measured) and not self._is_late(()) and (others := next(more, None)) is not None:
            found = self.evaluator.measure_all([one for one in others if not _is_known(one, self.measured)])
            self.measured += found
            names += [one.name for one in found]
        if names:
            title = "more rows, fewer layers in INT8"
            self.rungs.append(Rung(title, tuple(names), (time.monotonic() - began) / 60))

    def _holds(self, measured: Sequence[Measured]) -> bool:
        return any(one.is_within(self.limit) for one in measured)

    def _is_late(self, plans: Sequence[Plan]) -> bool:
        """Whether there is no time for a rung: one like it took so long, or nothing is left."""
        allowed = self.run.options.max_minutes
        if allowed is None or not self.rungs:
            return False
        left = allowed - (time.monotonic() - self.started) / 60
        wanted = [rung.minutes for rung in self.rungs[1:]] or [rung.minutes for rung in self.rungs]
        return left < (min(wanted[-2:]) if plans else 0)

    def _clock(self) -> str:
        allowed, spent = self.run.options.max_minutes, (time.monotonic() - self.started) / 60
        return f"[{spent:.1f} of {allowed:g} minutes] " if allowed else f"[{spent:.1f} minutes] "


def _rounded(target: float) -> float:
    """A speed-up in three digits: it is part of names."""
    return float(f"{target:.3g}")


def _is_known(one: Candidate, measured: Sequence[Measured]) -> bool:
    """Whether the same model with the same integers was measured already."""
    others = (other.candidate for other in measured if other.candidate.parent is one.parent)
    return any(equal(one.quant_map, other.quant_map) for other in others)
