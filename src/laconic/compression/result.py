"""`CompressionResult`: what a compress run made and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import Failure
from .choice import Choice, Screened
from .divide import DividedRows
from .measured import Baseline, Measured, Tested
from .parents import Parent
from .source import Source


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
    source: Source = field(repr=False)
    parents: tuple[Parent, ...] = field(repr=False)
    pareto: tuple[str, ...]
    output_dir: Path
    same: Mapping[str, str]
    notes: tuple[str, ...]
    screened: tuple[Screened, ...] = ()
    sensitivity: Mapping[str, float] = field(default_factory=dict)
    test: Tested | None = None
    max_drop: float | None = None
    met: bool = True
    """Whether the drop is at most `max_drop`; True where none was asked for."""
    settings: Mapping[str, Any] = field(repr=False, default_factory=dict)
    """What was asked for and with which versions, in plain types."""

    @property
    def path(self) -> Path:
        """Folder of the best artifact: `laconic.runtime.load(result.path)`."""
        return self.output_dir / "best"

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
