"""`CompressionResult`: what a compress run made and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import Failure
from ..measure.benchmark import Setting
from ..measure.score import Score
from ..measure.tables import aligned, points
from ..models.carve import Shape
from ..prune.latency import LatencyTable
from ..report import REPORTS
from .choice import Choice, Measured
from .divide import DividedRows
from .evaluator import Baseline, Tested
from .ladder import Rung
from .make_shots import TOLERANCE
from .parents import Parent


@dataclass(frozen=True, repr=False)
class CompressionResult:
    """The best artifact, everything that was tried, the rule that chose, and what it was all measured with.

    `source`: the user's model; `parents`: all models that candidates were made of, pruned ones too. `pareto`: names of
    candidates that no other beats in score, speed and size at once. `same`: names of candidates that would have been
    equal to another, with its name. `screened`: candidates that were dropped after a comparison on a few rows.
    `sensitivity`: by layer of the best's model the mean |Δlogit| with that layer alone in INT8, where it was measured.
    """

    best: Measured
    candidates: tuple[Measured, ...]
    choice: Choice
    fp32: Baseline
    rows: DividedRows
    source: Parent
    parents: tuple[Parent, ...]
    pareto: tuple[str, ...]
    output_dir: Path
    same: Mapping[str, str]
    notes: tuple[str, ...]
    screened: tuple[Measured, ...] = ()
    sensitivity: Mapping[str, float] = field(default_factory=dict)
    test: Tested | None = None
    max_drop: float | None = None
    met: bool = True
    """Whether the drop is at most `max_drop`; True without a limit."""
    setting: Setting | None = None
    """Batch, length and threads of speed-ups; None where nothing was pruned to order."""
    full_shape: Shape | None = None
    """Heads and neurons of the user's model, where some were pruned; None where none were."""
    tables: tuple[LatencyTable, ...] = ()
    """Times of layers on this machine, where something was pruned to order."""
    rungs: tuple[Rung, ...] = ()
    """What was tried, in order, with the minutes it took."""
    not_tried: tuple[str, ...] = ()
    """What there was no time for."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The options and the versions of packages, in plain types."""

    @property
    def path(self) -> Path:
        """Folder of the best artifact: `tersely.runtime.load(result.path)`."""
        return self.output_dir / "best"

    @property
    def paths(self) -> dict[str, Path]:
        """Folder of each candidate by its name."""
        return {measured.name: measured.candidate.folder for measured in self.candidates}

    @property
    def scores(self) -> dict[str, float | None]:
        """Score of each candidate by its name, as the metric gives it; None: not scored."""
        return {measured.name: None if measured.score is None else measured.score.value for measured in self.candidates}

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes that one CPU class loads of each candidate, by its name."""
        return {measured.name: measured.size for measured in self.candidates}

    @property
    def speeds(self) -> dict[str, dict[int, float]]:
        """How many times as fast as the fastest FP32 engine each candidate is, by its name and the batch size."""
        timed = {measured.name: measured.speed.items() for measured in self.candidates}
        return {name: {batch: float(ratio) for batch, (ratio, _, _) in speed} for name, speed in timed.items()}

    @property
    def report(self) -> Path:
        """The report of the run, a page for a browser."""
        return self.output_dir / REPORTS[0]

    def __repr__(self) -> str:
        """A small table: FP32 and each candidate, the best first, with score and drop in points."""
        head = ["", self.source.task.metric, "drop", "MB", *(f"× FP32, batch {batch}" for batch in self.fp32.seconds)]
        rows = [["FP32", _points(self.fp32.score), "", f"{self.fp32.size / 1e6:.2f}", *("1.00" for _ in head[4:])]]
        for measured in sorted(self.candidates, key=lambda measured: measured.name != self.best.name):
            name = f"{measured.name} (best)" if measured.name == self.best.name else measured.name
            drop = measured.comparison.drop
            speeds = [f"{ratio:.2f}" for ratio in self.speeds[measured.name].values()]
            rows.append(
                [
                    name,
                    _points(measured.score),
                    points(drop.drop if drop else None),
                    f"{measured.size / 1e6:.2f}",
                    *speeds,
                ]
            )
        return aligned(head, rows)

    @property
    def missed(self) -> dict[str, tuple[float, float]]:
        """Candidates that are more than 5 % slower than the speed-up they were made for: asked for, measured."""
        shots = [(measured, measured.candidate.parent.shot) for measured in self.candidates]
        pairs = {
            measured.name: (shot.target, measured.speedup[0]) for measured, shot in shots if shot and measured.speedup
        }
        return {name: (target, seen) for name, (target, seen) in pairs.items() if seen < (1 - TOLERANCE) * target}

    def expect_met(self) -> None:
        """Fail where the drop could not be kept to `max_drop`, or a speed-up that was asked for was not reached."""
        drop = self.best.comparison.drop
        if not self.met and self.max_drop is not None and drop is not None:
            raise Failure(
                f"No candidate keeps the drop to {100 * self.max_drop:.2f} points: the best one has "
                f"{100 * drop.drop:.2f}.",
                where=str(self.output_dir),
                hint="All candidates are there. Give more calibration rows, or allow more.",
            )
        if self.missed and self.settings.get("options", {}).get("target_speedup"):
            said = ", ".join(f"{name} {seen:.2f} × of {target:g}" for name, (target, seen) in self.missed.items())
            raise Failure(
                f"A speed-up that was asked for was missed by more than {100 * TOLERANCE:g} %: {said}.",
                where=str(self.output_dir),
                hint="All candidates are there. Was the machine quiet? Ask for a little more.",
            )


def _points(score: Score | None) -> str:
    return "not scored" if score is None else points(score.value)
