"""`CompressionResult`: what a compress run made and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import Failure
from ..measure.score import Score
from ..report import REPORTS
from .choice import Choice, Measured
from .divide import DividedRows
from .evaluator import Baseline, Tested
from .parents import Parent


@dataclass(frozen=True)
class CompressionResult:
    """The best artifact, everything that was tried, the rule that chose, and what it was all measured with.

    `source`: the user's model; `parents`: all models that candidates were made of, pruned ones too. `pareto`: names of
    candidates that no other beats in score, speed and size at once. `same`: names of candidates that would have been
    equal to another, with its name. `screened`: what was written off after a look at a few rows. `sensitivity`: by
    layer of the best's model the mean |Δlogit| with that one alone in INT8, where it was asked for.
    """

    best: Measured
    candidates: tuple[Measured, ...]
    choice: Choice
    fp32: Baseline
    rows: DividedRows = field(repr=False)
    source: Parent = field(repr=False)
    parents: tuple[Parent, ...] = field(repr=False)
    pareto: tuple[str, ...]
    output_dir: Path
    same: Mapping[str, str]
    notes: tuple[str, ...]
    screened: tuple[Measured, ...] = ()
    sensitivity: Mapping[str, float] = field(default_factory=dict)
    test: Tested | None = None
    max_drop: float | None = None
    met: bool = True
    """Whether the drop is at most `max_drop`; True where none was asked for."""
    settings: Mapping[str, Any] = field(repr=False, default_factory=dict)
    """What was asked for and with which versions, in plain types."""

    @property
    def path(self) -> Path:
        """Folder of the best artifact: `tersely.runtime.load(result.path)`."""
        return self.output_dir / "best"

    @property
    def paths(self) -> dict[str, Path]:
        """Folder of each candidate by its name."""
        return {one.name: one.candidate.folder for one in self.candidates}

    @property
    def scores(self) -> dict[str, float | None]:
        """Score of each candidate by its name, as the metric gives it; None: not scored."""
        return {one.name: None if one.score is None else one.score.value for one in self.candidates}

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes that one CPU class loads of each candidate, by its name."""
        return {one.name: one.size for one in self.candidates}

    @property
    def speeds(self) -> dict[str, dict[int, float]]:
        """How many times as fast as the fastest FP32 engine each candidate is, by its name and the batch size."""
        timed = {one.name: one.speed.items() for one in self.candidates}
        return {name: {batch: float(ratio) for batch, (ratio, _, _) in speed} for name, speed in timed.items()}

    @property
    def report(self) -> Path:
        """The report of the run, a page for a browser."""
        return self.output_dir / REPORTS[0]

    def __str__(self) -> str:
        """One line for FP32 and one for each candidate, the best first."""
        lines = [_line("FP32", self.fp32.score, self.fp32.size, {})]
        for one in sorted(self.candidates, key=lambda one: one.name != self.best.name):
            name = f"{one.name} (best)" if one.name == self.best.name else one.name
            lines.append(_line(name, one.score, one.size, self.speeds[one.name]))
        return "\n".join(lines)

    def expect_met(self) -> None:
        """Fail where the drop could not be kept to `max_drop`."""
        drop = self.best.comparison.drop
        if not self.met and self.max_drop is not None and drop is not None:
            raise Failure(
                f"No candidate keeps the drop to {100 * self.max_drop:.2f} points: the best one has "
                f"{100 * drop.drop:.2f}.",
                where=str(self.output_dir),
                hint="All candidates are there. Give more calibration rows, or allow more.",
            )


def _line(name: str, score: Score | None, size: int, speed: Mapping[int, float]) -> str:
    scored = "not scored" if score is None else f"{score.metric} {score.value:.4f}"
    faster = [f"{ratio:.2f} × FP32 at batch {batch}" for batch, ratio in speed.items()]
    return ", ".join([f"{name}: {scored}", f"{size / 1e6:.1f} MB", *faster])
