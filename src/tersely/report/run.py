"""`FinishedRun`: the content of `result.json` as a report reads it; what an older run did not write is left out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError, existing, fill
from ..strategy import TRAINED

RESULT = "result.json"


@dataclass(frozen=True)
class Speed:
    """Times as fast as the fastest FP32 engine."""

    ratio: float


@dataclass(frozen=True)
class LayerSizes:
    """Heads and FFN neurons of each layer, and which layers of the user's model these are."""

    heads: tuple[int, ...]
    ffn: tuple[int, ...]
    layers: tuple[int, ...]


@dataclass(frozen=True)
class ModelResult:
    """FP32 or a candidate, and what was measured of it. None: not measured.

    `model`: which of the pruned models it was made of; None: the user's own. `speedup`: at the setting of `--target_…`.
    `shape`: of FP32 alone, where something of it was pruned.
    """

    name: str = "FP32"
    strategy: str = ""
    model: str | None = None
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
    speedup: Speed | None = None
    shape: LayerSizes | None = None
    pareto: bool = False
    why_not: str | None = None
    sha256: str = ""

    @property
    def speed(self) -> float | None:
        """What choosing goes by: the speed-up at the target's setting, else the geometric mean over batch sizes."""
        if self.speedup is not None:
            return self.speedup.ratio
        ratios = [speed.ratio for speed in self.speed_by_batch.values()]
        return math.prod(ratios) ** (1 / len(ratios)) if ratios else None

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of its strategy."""
        return tuple(self.strategy.split("+"))

    @property
    def trained(self) -> bool:
        """Whether one of its steps trains."""
        return any(step in TRAINED for step in self.steps)


@dataclass(frozen=True)
class OneShotResult:
    """What pruning without training says of a model: the speed-up asked for, by the latency table and measured."""

    target: float
    method: str
    change: float
    expected: float
    seen: float


@dataclass(frozen=True)
class PrunedModel:
    """A model that pruning made of the user's. `width`, `depth`, `torch_score`, `step`: where it was trained."""

    name: str
    width: str | None = None
    depth: str | None = None
    torch_score: float | None = None
    step: int | None = None
    shape: LayerSizes | None = None
    shot: OneShotResult | None = None
    vocabulary: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetSetting:
    """What speed-ups are meant at. `missed`: by candidate the speed-up asked for and the one measured."""

    batch: int
    length: int
    threads: int
    missed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        """In words."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"batch {self.batch}, length {self.length}, {threads}"


@dataclass(frozen=True)
class LadderRung:
    """Strategies that were tried together, the candidates that came of them, and the minutes it took."""

    title: str
    names: tuple[str, ...]
    minutes: float


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
    target: TargetSetting | None = None
    rungs: tuple[LadderRung, ...] = ()
    not_tried: tuple[str, ...] = ()
    latency_tables: tuple[Mapping[str, Any], ...] = ()
    pruned: tuple[PrunedModel, ...] = ()
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
    def chosen_pruned(self) -> PrunedModel | None:
        """The pruned model that the best candidate was made of; None: the user's own."""
        return self.pruned_of(self.chosen)

    def pruned_of(self, model: ModelResult) -> PrunedModel | None:
        """The pruned model that a candidate was made of."""
        return next((pruned for pruned in self.pruned if pruned.name == model.model), None)

    @property
    def wishes(self) -> tuple[float, ...]:
        """The speed-ups of `--target_speedup`."""
        targets = self._options.get("target_speedup")
        if not isinstance(targets, list):
            return ()
        return tuple(float(target) for target in targets if isinstance(target, (int, float)))

    @property
    def by_itself(self) -> bool:
        """Whether `auto` chose what to try."""
        return "auto" in (self._options.get("strategy") or ())

    @property
    def limit_by(self) -> str:
        """Who set the limit of the drop: the option, or `auto`, which looks for a point at most."""
        return "auto's limit" if self._options and self._options.get("max_drop") is None else "--max_drop"

    @property
    def _options(self) -> Mapping[str, Any]:
        found = self.settings.get("options")
        return found if isinstance(found, Mapping) else {}

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
