"""`FinishedRun`: the content of `result.json` as a report reads it; what an older run did not write is left out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError, existing, fill

RESULT = "result.json"


@dataclass(frozen=True)
class Speed:
    """Times as fast as the fastest FP32 engine."""

    ratio: float


@dataclass(frozen=True)
class ModelResult:
    """FP32 or a candidate, and what was measured of it. None: not measured."""

    name: str = "FP32"
    strategy: str = ""
    engine: str = ""
    emulated: bool = False
    score: float | None = None
    interval: tuple[float, ...] | None = None
    rows: int | None = None
    drop: float | None = None
    drop_interval: tuple[float, ...] | None = None
    same_answer: float | None = None
    mean_abs_logit_change: float | None = None
    size: int = 0
    memory_mb: float | None = None
    speed_by_batch: Mapping[str, Speed] = field(default_factory=dict)
    engine_by_batch: Mapping[str, str] = field(default_factory=dict)
    pareto: bool = False
    why_not: str | None = None
    sha256: str = ""

    @property
    def speed(self) -> float | None:
        """What choosing goes by: the geometric mean over batch sizes."""
        ratios = [speed.ratio for speed in self.speed_by_batch.values()]
        return math.prod(ratios) ** (1 / len(ratios)) if ratios else None


@dataclass(frozen=True)
class LayerResult:
    """A layer, table or product of the best, and what became of it."""

    name: str
    kind: str = "layer"
    precision: str = "float"
    reason: str | None = None
    range: tuple[float, ...] | None = None
    shape: tuple[int, ...] | None = None
    smoothed: bool = False
    largest_integer: int | None = None
    unsafe_pairs: int | None = None


@dataclass(frozen=True)
class Row:
    """A row whose answer changed."""

    where: str
    texts: Mapping[str, str] = field(default_factory=dict)
    fp32: str = ""
    best: str = ""
    gold: str | None = None
    verdict: str | None = None


@dataclass(frozen=True)
class Changes:
    """How many answers changed, and the worst of them. `worse`, `better`: None without labels."""

    rows: int
    changed: int
    worse: int | None = None
    better: int | None = None
    shown: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Confusion:
    """How often each label (by row) was answered with which (by column)."""

    labels: tuple[str, ...]
    fp32: tuple[tuple[int, ...], ...]
    best: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Test:
    """Scores on rows that chose nothing."""

    fp32: ModelResult
    best: ModelResult


@dataclass(frozen=True)
class FinishedRun:
    """A finished compress run."""

    tersely_version: str
    best: str
    candidates: tuple[ModelResult, ...]
    fp32: ModelResult = field(default_factory=ModelResult)
    model: str = "model"
    task: str = ""
    metric: str = "score"
    greater_is_better: bool = True
    fraction: bool = True
    cpu: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rule: str = ""
    max_drop: float | None = None
    met_max_drop: bool = True
    pruned: tuple[Mapping[str, Any], ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    screened_out: tuple[Mapping[str, Any], ...] = ()
    layers: tuple[LayerResult, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    sensitivity: Mapping[str, float] = field(default_factory=dict)
    changes: Changes | None = None
    confusion: Confusion | None = None
    test: Test | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen(self) -> ModelResult:
        """The best candidate."""
        return next(model for model in self.candidates if model.name == self.best)

    @property
    def scored(self) -> bool:
        """Whether there were labelled rows."""
        return self.fp32.score is not None

    @property
    def sign(self) -> int:
        """-1 where less is better."""
        return 1 if self.greater_is_better or not self.scored else -1

    @property
    def batches(self) -> list[str]:
        """Batch sizes that were timed."""
        return list(self.chosen.speed_by_batch)


def read_run(folder: str | Path) -> FinishedRun:
    """Read the result of a finished run; any other folder is refused."""
    folder = existing(folder, "folder")
    file = folder / RESULT
    hint = "Name the --output_dir of a 'tersely compress' that has ended."
    if not file.is_file():
        what = f"There is no {RESULT} here: this is not a finished compress run."
        raise UserError(what, where=str(folder), hint=hint)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"It cannot be read: {error.strerror}.", where=str(file)) from None
    except (ValueError, RecursionError):
        raise UserError("This is not JSON.", where=str(file), hint=hint) from None
    return run_of(content, where=str(file))


def run_of(content: Any, where: str | None = None) -> FinishedRun:
    """Check what a result holds; `where` names its file in messages."""
    run = fill(FinishedRun, content, "The result", where=where, lenient=True)
    if run.best not in [model.name for model in run.candidates]:
        raise UserError(f"The best, '{run.best}', is not among the result's candidates.", where=where)
    return run
