"""Models that `prune` makes for a speed-up: a shape by measured times, cut and repaired; its graph is timed again."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from ..errors import UserError
from ..measure.benchmark import Setting
from ..prune.one_shot import OneShotPruner
from ..strategy import DYNAMIC, PTQ
from ..training.model_folder import save_carved
from .parents import Parent, RunContext, Shot, open_made
from .shape_timer import ShapeTimer

TOLERANCE = 0.05
"""How far a measured speed-up may be off the one that was asked for."""
TRIES = 2
"""Models that are made for one target, the second with a budget corrected by the time that the first takes."""
FEWEST = 32
"""Rows that statistics need."""


def timed_as(quantizer: str | None) -> str | None:
    """Quantizers with equal answers make graphs of equal speed: what is trained for INT8 becomes the graph of ptq."""
    return quantizer if quantizer in (None, DYNAMIC) else PTQ


def speed_name(target: float) -> str:
    """What models and candidates of a target are called.

    >>> speed_name(6.0), speed_name(2.5)
    ('speedup_6', 'speedup_2.5')
    """
    return f"speedup_{target:g}"


class ShotMaker:
    """Makes models for speed-ups out of one base, the user's model or that with fewer tokens; each once.

    `setting`: at which batch, length and threads a speed-up is meant. `prefix` stands before the names of its folders.
    """

    def __init__(self, origin: Parent, base: Parent, run: RunContext, setting: Setting, prefix: str = "") -> None:
        self.origin, self.base, self.run, self.setting, self.prefix = origin, base, run, setting, prefix
        self.timers: dict[str | None, ShapeTimer] = {}
        self._made: dict[tuple[str | None, float], Parent] = {}
        if len(run.rows.statistics) < FEWEST:
            what = f"There are {len(run.rows.statistics)} rows to prune by; {FEWEST} are needed at least."
            raise UserError(what, hint="Give more with --train_file; labels are not needed.", option="train_file")

    def make(self, quantizer: str | None, target: float) -> Parent:
        """A model whose graph in this precision is so many times as fast as FP32, as nearly as two tries get."""
        kind = timed_as(quantizer)
        if (kind, target) not in self._made:
            self._made[kind, target] = self._make(kind, target)
        return self._made[kind, target]

    @cached_property
    def pruner(self) -> OneShotPruner:
        """What knows the scores of heads and neurons."""
        rows, seed, progress = self.run.rows.statistics, self.run.options.seed, self.run.progress
        return OneShotPruner(self.base.folder, rows, first_only=self.base.first_only, seed=seed, progress=progress)

    def timer(self, quantizer: str | None) -> ShapeTimer:
        """What times graphs of a quantizer."""
        kind = timed_as(quantizer)
        return self.timers.setdefault(kind, ShapeTimer(self.origin, self.base, kind, self.setting, self.run))

    def _make(self, kind: str | None, target: float) -> Parent:
        timer = self.timer(kind)
        budget, tried = timer.table.fp32 / target, []
        for number in range(TRIES):
            one = self._prune(timer, target, budget, f"{number}-{kind}")
            seen = one.shot.seen if one.shot else target
            tried.append((abs(seen / target - 1), one))
            if tried[-1][0] <= TOLERANCE:
                break
            budget *= seen / target
        return min(tried, key=lambda pair: pair[0])[1]

    def _prune(self, timer: ShapeTimer, target: float, budget: float, place: str) -> Parent:
        """Cut and repair the base for a budget of seconds, export it and time its graph."""
        table, run, name = timer.table, self.run, speed_name(target)
        one = self.pruner.prune(table, budget)
        folder = run.scratch / "shots" / f"{self.prefix}{name}-{place}"
        save_carved(one.model, folder, source=self.base.folder.path)
        made = open_made(self.base.folder.at(folder), self.base, folder.with_name(f"{folder.name}-fp32"), run)
        seen = timer.speedup(made)
        expected = table.speedup(one.shape, self.pruner.places.full)
        shot = Shot(name, target, one.shape, one.method, one.change, expected, seen)
        run.progress.say(f"{name}: {shot}")
        kind = timer.quantizer
        suffix = {PTQ: "", None: "-fp32"}.get(kind, f"-{kind}")
        return replace(made, name=f"{self.prefix}{name}{suffix}", shot=shot)
