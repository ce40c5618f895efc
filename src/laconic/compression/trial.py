"""Candidates on trial: scored on the engine that will run them, compared with FP32, timed in one alternating run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engines, runtime
from ..export import GRAPH
from ..folder import longest, read_config
from ..measure.benchmark import Contestant, alternate, full_batch
from ..measure.score import Answers, Comparison, Score, answer, compare, score
from ..progress import Progress
from ..runtime import Predictor
from . import choice
from .candidate import Candidate
from .divide import DividedRows
from .rows import SCREENING
from .source import Source

BATCHES, LENGTH = (1, 16), 128
TIMED_ROWS = 1000
"""Rows of the table that dynamic prints, at most: its four evaluations are not to take longer than all else."""


@dataclass(frozen=True)
class Baseline:
    """The FP32 model: its score, its size in bytes, and seconds a batch of its fastest engine by batch size."""

    score: Score | None
    answers: Score | Answers = field(repr=False)
    size: int
    seconds: dict[int, float] = field(default_factory=dict)
    engine: str = "onnxruntime"


@dataclass(frozen=True)
class Measured:
    """A candidate and what was measured of it. `speed` by batch size: × the fastest FP32 engine, with the spread."""

    candidate: Candidate
    engine: str
    answers: Score | Answers = field(repr=False)
    comparison: Comparison
    size: int
    statistics: NDArray[np.float64] | None = field(repr=False, default=None)
    speed: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    evaluation: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Seconds to answer the rows with FP32 and with this, by threads; for dynamic alone."""

    @property
    def name(self) -> str:
        """The candidate's."""
        return self.candidate.name

    @property
    def score(self) -> Score | None:
        """None where there are no labelled rows."""
        return self.answers if isinstance(self.answers, Score) else None

    def contender(self) -> choice.Contender:
        """What choosing looks at."""
        ratios = [ratio for ratio, _, _ in self.speed.values()]
        speed = math.prod(ratios) ** (1 / len(ratios)) if ratios else None
        compared = self.comparison
        change = compared.mean_abs_logit_change or 0.0
        return choice.Contender(self.name, self.size, compared.same_answer, speed, change, self.statistics)


class Trial:
    """One set of rows and the FP32 model on it; every candidate is measured against that."""

    def __init__(self, source: Source, rows: DividedRows, progress: Progress) -> None:
        self._source, self._rows, self._progress = source, rows, progress
        self._exact = self._predictor("onnxruntime", source.fp32.path(GRAPH), "fp32")
        given = self._answer(self._exact, "FP32")
        size = source.fp32.loaded_bytes(source.fp32.manifest.graphs[0])
        self.fp32 = Baseline(given if isinstance(given, Score) else None, given, size)

    def look(self, candidate: Candidate) -> Comparison:
        """Compare a candidate with FP32 on a few rows."""
        few = np.unique(np.linspace(0, len(self._rows.scoring) - 1, SCREENING).astype(int))
        examples = [self._rows.scoring[i] for i in few]
        pair = candidate.pairs()[0]
        predictor = self._predictor(pair.engine, candidate.folder / pair.graph.path, "int8")
        exact, other = answer(self._exact, examples), answer(predictor, examples)
        return compare(predictor, examples, exact, other)

    def measure(self, candidate: Candidate) -> Measured:
        """Score a candidate on the engine that the runtime would choose here."""
        pair = candidate.pairs()[0]
        predictor = self._predictor(pair.engine, candidate.folder / pair.graph.path, "int8")
        given = self._answer(predictor, candidate.name)
        comparison = compare(predictor, self._rows.scoring, self.fp32.answers, given)
        statistics = None
        if isinstance(given, Score):
            statistics = predictor.task.statistics(given.metric, self._rows.scoring, given.answers)
        return Measured(candidate, pair.engine, given, comparison, candidate.size(pair.graph), statistics)

    def time(self, measured: list[Measured]) -> None:
        """Time one candidate of each plan and build against every FP32 engine, one thread; the others are alike."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        for place, one in enumerate(measured):
            alike.setdefault(_build(one), []).append(place)
        length = min(LENGTH, self._source.task.max_seq_length, longest(read_config(self._source.fp32.folder)) or LENGTH)
        speeds: dict[int, dict[int, tuple[float, float, float]]] = {places[0]: {} for places in alike.values()}
        seconds = {}
        for size in BATCHES:
            batch = full_batch(size, length, self._source.encoder.vocab_size)
            graph = self._source.fp32.path(GRAPH)
            runners = {name: engines.load(name, graph, threads=1) for name in engines.installed() if name != "torch"}
            contestants = [Contestant("FP32", name, _work(runner, batch)) for name, runner in runners.items()]
            for place in speeds:
                one = measured[place]
                pair = one.candidate.pairs()[0]
                runner = engines.load(pair.engine, one.candidate.folder / pair.graph.path, threads=1, precision="int8")
                contestants.append(Contestant(one.name, one.engine, _work(runner, batch)))
            title = f"time, batch {size}"
            timings = alternate(contestants, contestants[0].label, seconds=1.0, title=title, progress=self._progress)
            fastest = min(timings[: len(runners)], key=lambda timing: timing.seconds)
            seconds[size] = fastest.seconds
            self.fp32 = replace(self.fp32, engine=fastest.engine)
            for place, timing in zip(speeds, timings[len(runners) :], strict=True):
                low, high = (edge / fastest.ratio for edge in timing.spread)
                speeds[place][size] = (timing.ratio / fastest.ratio, low, high)
        self.fp32 = replace(self.fp32, seconds=seconds)
        for places in alike.values():
            for place in places:
                measured[place] = replace(measured[place], speed=speeds[places[0]])
        for place, one in enumerate(measured):
            if one.candidate.plan.quantizer == "dynamic":
                measured[place] = replace(one, evaluation=self._evaluate_twice(one))

    def test(self, best: Measured) -> tuple[Score, Score] | None:
        """FP32 and the best on rows that chose nothing."""
        if self._rows.test is None:
            return None
        pair = best.candidate.pairs()[0]
        predictor = self._predictor(pair.engine, best.candidate.folder / pair.graph.path, "int8")
        first = score(self._exact, self._rows.test, title="test FP32", progress=self._progress)
        return first, score(predictor, self._rows.test, title=f"test {best.name}", progress=self._progress)

    def _evaluate_twice(self, one: Measured) -> dict[str, tuple[float, float]]:
        """Seconds to answer the rows before and after, with one thread and with all."""
        examples = self._rows.scoring[:TIMED_ROWS]
        pair = one.candidate.pairs()[0]
        found = {}
        for threads in (1, None):
            exact = self._predictor("onnxruntime", self._source.fp32.path(GRAPH), "fp32", threads)
            other = self._predictor(pair.engine, one.candidate.folder / pair.graph.path, "int8", threads)
            key = "1" if threads == 1 else str(exact.engine.threads)
            found[key] = (answer(exact, examples).seconds, answer(other, examples).seconds)
        return found

    def _answer(self, predictor: Predictor, name: str) -> Score | Answers:
        title = f"evaluate {name} on {predictor.engine.name}"
        if self._rows.labelled:
            return score(predictor, self._rows.scoring, title=title, progress=self._progress)
        return answer(predictor, self._rows.scoring, title=title, progress=self._progress)

    def _predictor(self, engine: str, graph: Any, precision: str, threads: int | None = None) -> Predictor:
        runner = engines.load(engine, graph, precision=precision, threads=threads)
        return runtime.Predictor(self._source.task, self._source.encoder, runner)


def _build(one: Measured) -> tuple[Any, ...]:
    """What decides speed: the plan, the engine, which layers are integer and which of them are smoothed."""
    layers = one.candidate.quant_map.layers
    return one.candidate.plan, one.engine, tuple((name, layer.smooth is None) for name, layer in layers.items())


def _work(engine: Any, batch: Any) -> Any:
    return lambda: engine.run(batch)


def folder_bytes(candidate: Candidate) -> int:
    """Size of the whole folder."""
    return sum(path.stat().st_size for path in candidate.folder.rglob("*") if path.is_file())
