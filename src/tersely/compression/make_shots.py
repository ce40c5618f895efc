"""Models that `prune` makes for a speed-up: a shape by measured times, cut and repaired; its graph is timed again."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from ..atomic import atomic_file
from ..errors import UserError, fill
from ..measure.benchmark import Setting
from ..models.carve import Shape
from ..prune.latency import LatencyTable, empty_shape
from ..prune.one_shot import OneShotPruner
from ..strategy import PTQ
from ..training.checkpoints import digest
from ..training.model_folder import save_carved
from .parents import Parent, RunContext, Shot, open_made
from .shape_timer import ShapeTimer, timed_as

TOLERANCE, CLOSE = 0.05, 0.03
"""How far a measured speed-up may be off the one that was asked for, and how near a first try has to come."""
LOOSE = 0.1
"""The same where a search asks, not the user: any speed-up near it will do."""
TRIES = 2
"""Models that are made for one target, the second with a budget corrected by the time that the first takes."""
FURTHEST = 1.25
"""By how much a budget is corrected at most: more than that is a disturbed timing."""
FEWEST = 32
"""Rows that statistics need."""
SHOTS = "shots"
"""Folder of what was cut and repaired, among what a run keeps until its result is there."""


def speed_name(target: float) -> str:
    """What models and candidates of a target are called.

    >>> speed_name(6.0), speed_name(2.5)
    ('speedup_6', 'speedup_2.5')
    """
    return f"speedup_{target:g}"


@dataclass(frozen=True)
class CutModel:
    """What is known of a model that was cut and repaired; `mark`: all that it depends on, as a hash."""

    mark: str
    shape: Shape
    method: str
    change: float


class ShotMaker:
    """Makes models for speed-ups out of one base, the user's model or that with fewer tokens; each once.

    `setting`: batch, length and threads at which speed-ups are measured. `prefix`: begins the names of folders.
    """

    def __init__(self, origin: Parent, base: Parent, run: RunContext, setting: Setting, prefix: str = "") -> None:
        self.origin, self.base, self.run, self.setting, self.prefix = origin, base, run, setting, prefix
        self.timers: dict[str | None, ShapeTimer] = {}
        self._made: dict[tuple[str | None, float], Parent] = {}
        if len(run.rows.statistics) < FEWEST:
            what = f"There are {len(run.rows.statistics)} rows to prune by; {FEWEST} are needed at least."
            raise UserError(what, hint="Give more with --train_file; labels are not needed.", option="train_file")

    def make(self, quantizer: str | None, target: float, until: float | None = None) -> Parent:
        """A model whose graph in this precision is so many times as fast as FP32, as nearly as two tries get.

        `until`: from then on, by `time.monotonic`, there is no second try.
        """
        kind = timed_as(quantizer)
        if (kind, target) not in self._made:
            self._made[kind, target] = self._make(kind, target, until)
        return self._made[kind, target]

    @cached_property
    def pruner(self) -> OneShotPruner:
        """The pruner, which scores heads and neurons once."""
        rows, seed, progress = self.run.rows.statistics, self.run.options.seed, self.run.progress
        return OneShotPruner(self.base.folder, rows, first_only=self.base.first_only, seed=seed, progress=progress)

    def timer(self, quantizer: str | None) -> ShapeTimer:
        """The timer of graphs that a quantizer makes."""
        kind = timed_as(quantizer)
        return self.timers.setdefault(kind, ShapeTimer(self.origin, self.base, kind, self.setting, self.run))

    def speed_range(self, quantizer: str | None) -> tuple[float, float]:
        """How many times as fast as FP32 the base is by the table, and how fast it would be without layers."""
        table, full = self.timer(quantizer).table, self.pruner.places.full
        return table.speedup(full, full), table.speedup(empty_shape(full), full)

    def _make(self, kind: str | None, target: float, until: float | None) -> Parent:
        timer, near = self.timer(kind), CLOSE if self.run.options.target_speedup else LOOSE
        budget, method, tried = timer.table.fp32 / target, None, []
        for number in range(TRIES):
            parent, shot = self._prune(timer, target, budget, f"{number}-{kind}", method)
            tried.append((abs(shot.seen / target - 1), number, parent))
            is_near = tried[-1][0] <= near or (shot.shape == self.pruner.places.full and shot.seen >= target)
            if is_near or (until is not None and time.monotonic() > until):
                break
            budget, method = budget * min(max(shot.seen / target, 1 / FURTHEST), FURTHEST), shot.method
        return min(tried)[-1]

    def _prune(
        self, timer: ShapeTimer, target: float, budget: float, place: str, method: str | None
    ) -> tuple[Parent, Shot]:
        """Cut and repair the base for a budget of seconds, export it and time its graph."""
        table, run, name = timer.table, self.run, speed_name(target)
        folder = run.work / SHOTS / f"{self.prefix}{name}-{place}"
        found = self._cut(table, budget, folder, method)
        made = open_made(self.base.folder.at(folder), self.base, run.scratch / "fp32-of" / folder.name, run)
        seen = timer.speedup(made, found.shape)
        expected = table.speedup(found.shape, self.pruner.places.full)
        shot = Shot(name, target, found.shape, found.method, found.change, expected, seen)
        run.progress.say(f"{name}: {shot}")
        suffix = {PTQ: "", None: "-fp32"}.get(timer.quantizer, f"-{timer.quantizer}")
        return replace(made, name=f"{self.prefix}{name}{suffix}", shot=shot), shot

    def _cut(self, table: LatencyTable, budget: float, folder: Path, method: str | None) -> CutModel:
        """Cut and repair the base for a budget; `folder` keeps the model for a run that goes on after a kill."""
        timed = {name: value for name, value in table.to_json().items() if name != "graphs"}
        mark = digest([self.base.digest, self._rows_mark, self.run.options.seed, timed, budget, method])
        record = folder.with_name(f"{folder.name}.json")
        with suppress(OSError, ValueError, UserError):
            found = fill(CutModel, json.loads(record.read_text(encoding="utf-8")), "The record")
            if found.mark == mark and (folder / "config.json").is_file():
                return found
        pruned = self.pruner.prune(table, budget, method)
        save_carved(pruned.model, folder, source=self.base.folder.path, overwrite=True)
        found = CutModel(mark, pruned.shape, pruned.method, pruned.change)
        with atomic_file(record) as stream:
            stream.write((json.dumps(asdict(found), indent=1) + "\n").encode())
        return found

    @cached_property
    def _rows_mark(self) -> str:
        return digest(list(self.run.rows.statistics))
