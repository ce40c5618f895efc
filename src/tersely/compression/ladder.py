"""Candidates of a run, rung by rung: all that was asked for, or cheapest first until the score would fall."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt

from ..errors import UserError
from ..strategy import PRUNE, QAT, Plan
from .candidate import Candidate
from .choice import Measured
from .evaluator import Evaluator
from .forecast import Forecast, RunClock
from .make_candidates import CandidateMaker, EverythingFloat, equal
from .make_parents import ParentMaker
from .parents import Parent, RunContext

LIMIT = 0.01
"""The largest drop that a search allows where `max_drop` is not set: one point."""
RISE = 1.35
"""How many times faster each rung of the search is than the one before."""
NEAR = 1.1
"""Speed-ups that are this close count as equal."""
NEAREST = 0.9
"""A search tries speed-ups up to this share of the speed without any layer."""
RUNGS_EXPECTED = 4
"""Speed-ups that a search tries, as a rule."""
SHORTEST = 1.0
"""A training is not begun if there are fewer minutes for it."""


@dataclass(frozen=True)
class Rung:
    """What was tried together: the plans, for which speed-up, what came of it, and how long it took."""

    title: str
    names: tuple[str, ...]
    minutes: float


@dataclass
class Ladder:
    """Makes and measures candidates. `rungs`: what was tried; `not_tried`: what there was no time for."""

    models: ParentMaker
    maker: CandidateMaker
    evaluator: Evaluator
    run: RunContext
    forecast: Forecast
    parents: list[Parent] = field(default_factory=list)
    same: dict[str, str] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    rungs: list[Rung] = field(default_factory=list)
    not_tried: list[str] = field(default_factory=list)
    _tables_took: float = 0.0

    def climb(self) -> list[Measured]:
        """Everything that was asked for, measured on the rows of the search."""
        options, plans = self.run.options, self.run.plans
        pruned = [plan for plan in plans if PRUNE in plan.steps]
        self._announce()
        if options.is_auto:
            self._climb_by_itself(plans)
        elif options.searches:
            self._try_in_turn([plan for plan in plans if plan not in pruned])
            self._rise(pruned)
        else:
            with self._timing_layers():
                self.models.check_targets(pruned, options.target_speedup or ())
            self._try_in_turn(plans)
            self._search_more()
        return self.measured

    @property
    def limit(self) -> float:
        """The largest drop that is allowed."""
        return LIMIT if self.run.options.max_drop is None else self.run.options.max_drop

    def _announce(self) -> None:
        """Say what will be tried and how long that takes; refuse a time in which nothing can be made."""
        options, plans, forecast = self.run.options, self.run.plans, self.forecast
        groups = _groups(plans)
        first = forecast.rung(groups[0]) + forecast.ending(1)
        if forecast.allowed is not None and forecast.spent + first > forecast.allowed:
            what = f"The first candidate takes about {forecast.spent + first:.1f} minutes"
            what += f"; '--max_minutes' allows {forecast.allowed:g}."
            raise UserError(what, hint="Allow more, or score fewer rows.", option="max_minutes")
        if not isinstance(self.run.progress, RunClock):
            return
        tries = len(options.target_speedup or ()) or (RUNGS_EXPECTED if options.searches else 1)
        total, lines = forecast.spent, []
        for group in groups:
            pruned, trained = any(PRUNE in plan.steps for plan in group), any(plan.trained for plan in group)
            times = 1 if trained and options.is_auto else tries if pruned else 1
            minutes = forecast.rung(group, times)
            total += minutes
            name = " and ".join(plan.name for plan in group)
            often = f" at {times} speed-ups" if times > 1 else ""
            training = ", and its training" if trained else ""
            only = " where it is needed" if trained and options.is_auto else ""
            lines.append(f"  {name}{often}{only}: about {minutes:.1f} min{training}")
        total += forecast.ending(len(groups) * 2)
        until = f"; it ends after {forecast.allowed:g}" if forecast.allowed is not None else ""
        self.run.progress.expected = total if forecast.allowed is None else min(total, forecast.allowed)
        self.run.progress.say(f"To be tried, in about {total:.0f} minutes{until}:")
        for line in lines:
            self.run.progress.say(line)

    def _climb_by_itself(self, plans: Sequence[Plan]) -> None:
        plain = [plan for plan in plans if not plan.pruning and not plan.trained]
        pruned = [plan for plan in plans if PRUNE in plan.steps and not plan.trained]
        distilled = [plan for plan in plans if PRUNE in plan.steps and plan.trained]
        self._try(plain)
        holds = self._holds(self.measured)
        if not holds:
            self._search_more()
        failed = self._rise(pruned) if pruned else []
        for number, target in enumerate(failed if distilled else (), 1):
            found = self._try(distilled, [target], trainings_later=len(failed) - number)
            if found is None or not self._holds(found):
                break
        if not holds:
            self._try([plan for plan in plans if plan.quantizer == QAT and not plan.pruning])

    def _rise(self, plans: Sequence[Plan]) -> list[float]:
        """Try rising speed-ups until the drop is above the limit, then between; those that failed, slowest first.

        With `target_speedup` each of these is tried instead, but for those that INT8 reaches without pruning.
        """
        targets, failed = self.run.options.target_speedup, []
        with self._timing_layers():
            low, most = self.models.speed_range(plans[0])
            self.models.check_targets(plans, targets or ())
        if targets:
            for target in sorted(targets):
                if target <= low and self._holds(self.measured):
                    self.run.progress.say(f"{target:g} × is reached without pruning: about {low:.2f} ×.")
                    continue
                found = self._try(plans, [target])
                if found is not None and not self._holds(found):
                    failed.append(target)
            return failed
        high: float | None = None
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

    def _try_in_turn(self, plans: Sequence[Plan]) -> None:
        """Try all plans: together, or group by group where the time is limited."""
        targets = self.run.options.target_speedup or ()
        if self.forecast.allowed is None:
            self._try(plans, targets)
            return
        turns: list[tuple[tuple[Plan, ...], list[float]]] = []
        for group in _groups(plans):
            pruned = any(PRUNE in plan.steps for plan in group)
            turns += [(group, [target]) for target in targets] if pruned else [(group, [])]
        for number, (group, wanted) in enumerate(turns, 1):
            later = sum(any(plan.trained for plan in other) for other, _ in turns[number:])
            self._try(group, wanted, later)

    def _try(
        self, plans: Sequence[Plan], targets: Sequence[float] = (), trainings_later: int = 0
    ) -> list[Measured] | None:
        """Make and measure what plans ask for; None where there is no time for it.

        `trainings_later`: for so many others an equal share of the time is left.
        """
        if not plans:
            return []
        title = " and ".join(plan.name for plan in plans)
        title += f" at {' and '.join(f'{target:g}' for target in targets)} ×" if targets else ""
        left = self.forecast.left(len(self.measured) + 1)
        expected = self.forecast.rung(plans, max(1, len(targets)))
        trains = any(plan.trained for plan in plans)
        if left is not None and self.rungs and left < expected + (SHORTEST if trains else 0):
            self.not_tried.append(title)
            return None
        if self.run.options.searches or self.forecast.allowed is not None:
            self.run.progress.say(f"{title}:")
        began = time.monotonic()
        share = None if left is None else left / (1 + trainings_later) - expected
        self.models.until = None if share is None else began + 60 * max(SHORTEST, share)
        if trains and isinstance(self.run.progress, RunClock) and self.forecast.allowed is not None:
            self.run.progress.expected = self.forecast.allowed  # a training takes what there is
        try:
            parents = self.models.make(plans, targets)
            candidates, same = self.maker.make_all(parents)
        except EverythingFloat as error:
            if not self.run.options.searches or not any(PRUNE in plan.steps for plan in plans):
                raise
            self.run.progress.say(f"{title}: {error.what}")
            return None
        found = self.evaluator.measure_all(candidates)
        self.parents += parents
        self.same |= same
        self.measured += found
        self._note(title, plans, found, began, len(targets))
        return found

    def _search_more(self) -> None:
        """Try more rows, then layers left float, while no candidate keeps to `max_drop`."""
        if self.run.options.max_drop is None:
            return
        began, tried = time.monotonic(), []
        more = self.maker.make_more(self.parents, [measured.candidate for measured in self.measured])
        while not self._holds(self.measured) and self._has_time() and (others := next(more, None)) is not None:
            found = self.evaluator.measure_all(
                [candidate for candidate in others if not _is_known(candidate, self.measured)]
            )
            self.measured += found
            tried += found
        if tried:
            self._note("more rows, fewer layers in INT8", (), tried, began, 0)

    @contextmanager
    def _timing_layers(self) -> Iterator[None]:
        """What measures latency tables: the next rung that prunes counts its minutes."""
        began = time.monotonic()
        yield
        self._tables_took += (time.monotonic() - began) / 60
        self.forecast.has_tables = True

    def _note(self, title: str, plans: Sequence[Plan], found: Sequence[Measured], began: float, speedups: int) -> None:
        minutes = (time.monotonic() - began) / 60
        tables = self._tables_took if any(PRUNE in plan.steps for plan in plans) else 0.0
        self._tables_took -= tables
        self.rungs.append(Rung(title, tuple(measured.name for measured in found), minutes + tables))
        if plans:
            self.forecast.note(plans, minutes / max(1, speedups))

    def _holds(self, candidates: Sequence[Measured]) -> bool:
        return any(measured.is_within(self.limit) for measured in candidates)

    def _has_time(self) -> bool:
        left = self.forecast.left(len(self.measured) + 1)
        return left is None or left > 0


def _groups(plans: Sequence[Plan]) -> list[tuple[Plan, ...]]:
    """Plans that share what is pruned."""
    return [tuple(plan for plan in plans if plan.pruning == steps) for steps in dict.fromkeys(p.pruning for p in plans)]


def _rounded(target: float) -> float:
    """A speed-up in three digits: it is part of names."""
    return float(f"{target:.3g}")


def _is_known(candidate: Candidate, measured: Sequence[Measured]) -> bool:
    """Whether the same model with the same integers was measured already."""
    others = (other.candidate for other in measured if other.candidate.parent is candidate.parent)
    return any(equal(candidate.quant_map, other.quant_map) for other in others)
