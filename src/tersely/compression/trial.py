"""Candidates on trial: scored on the engine that will run them, compared with FP32, timed in one alternating run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import engines, runtime
from ..deploy.export import GRAPH
from ..engines.engine import Engine
from ..errors import Failure
from ..measure.benchmark import Contestant, alternate, full_batch
from ..measure.check import record_name
from ..measure.footprint import footprint
from ..measure.score import Answers, Comparison, Score, answer, compare, score
from ..models.families import longest
from ..models.folder import read_config
from ..progress import Progress
from ..runtime import Predictor
from ..strategy import DYNAMIC
from ..tasks.task import whole_of
from .candidate import Candidate
from .divide import DividedRows
from .measured import Baseline, Measured, Tested
from .rows import screening_rows
from .source import Source

BATCHES, LENGTH = (1, 16), 128
SECONDS = 1.0
"""How long each contestant is timed at each batch size, at least."""
TIMED_ROWS = 1000
"""Rows of the table that dynamic prints, at most: its four evaluations are not to take longer than all else."""


class Trial:
    """One set of rows and the user's FP32 model on it; every candidate is measured against that, pruned or not.

    A candidate's rows are spelled by its own tokenizer. Answers are labels, tags and spans of the text, which do not
    depend on it; logits are compared for those rows that both cut into windows of the same lengths.
    """

    def __init__(self, source: Source, rows: DividedRows, scratch: Path, progress: Progress, seed: int = 42) -> None:
        self._source, self._rows, self._progress = source, rows, progress
        self._scratch = scratch / "emulated"
        self.exact = self._predictor(engines.load(engines.REFERENCE, source.fp32.path(GRAPH)))
        given = self._answer(self.exact, "FP32")
        size = source.fp32.loaded_bytes(source.fp32.manifest.graphs[0])
        self.fp32 = Baseline(given if isinstance(given, Score) else None, given, size)
        self._few = [rows.scoring[i] for i in screening_rows(np.arange(len(rows.scoring)), seed)]
        self._few_answers: Answers | None = None
        here = read_config(source.fp32.folder)
        self.length = min(LENGTH, source.task.max_seq_length, longest(here) or LENGTH)

    def runners(self, candidate: Candidate) -> dict[str, Engine]:
        """What a probe records: the FP32 model that the candidate was made of, and each graph of the candidate.

        Each graph on the engine that suits it best; with exact sums where this CPU has none.
        """
        graph = candidate.source.fp32.path(GRAPH)
        own = candidate.source is self._source
        before = self.exact.engine if own else engines.load(engines.REFERENCE, graph)
        if all(one.precision == "fp32" for one in candidate.graphs):
            return {"fp32": before}
        found: dict[str, Engine] = {}
        for pair in candidate.pairs():
            if (name := record_name(pair.graph)) not in found:
                found[name] = candidate.load(pair, emulated=self._scratch)
        return {"fp32": before, **found}

    def look(self, candidate: Candidate) -> Comparison:
        """Compare a candidate with FP32 on a few rows."""
        if self._few_answers is None:
            self._few_answers = answer(self.exact, self._few)
        predictor = self._predictor(candidate.load(candidate.pairs()[0], emulated=self._scratch), candidate.source)
        return compare(predictor, self._few, self._few_answers, answer(predictor, self._few))

    def measure(self, candidate: Candidate) -> Measured:
        """Score a candidate on the engine that the runtime would choose here."""
        pair = candidate.pairs()[0]
        predictor = self._predictor(candidate.load(pair, emulated=self._scratch), candidate.source)
        given = self._answer(predictor, candidate.name)
        comparison = compare(predictor, self._rows.scoring, self.fp32.answers, given)
        statistics, task = None, predictor.task
        if isinstance(given, Score) and whole_of(task) is None:
            statistics = task.statistics(given.metric, self._rows.scoring, given.answers)
        size = candidate.size(pair.graph)
        sign = 1 if task.metrics[task.metric].greater_is_better else -1
        return Measured(candidate, pair.engine, given, comparison, size, not pair.fits, statistics, sign=sign)

    def time(self, measured: Sequence[Measured]) -> list[Measured]:
        """Time one candidate of each plan and build against every FP32 engine, one thread; the others are alike."""
        alike: dict[tuple[Any, ...], list[str]] = {}
        for one in measured:
            alike.setdefault(_build(one), []).append(one.name)
        firsts = [one for one in measured if one.name == alike[_build(one)][0]]
        graph = self._source.fp32.path(GRAPH)
        names = engines.installed(engines.GRAPH_ENGINES)
        runners = [("FP32", name, engines.load(name, graph, threads=1)) for name in names]
        runners += [(one.name, one.engine, one.candidate.load(one.candidate.pairs()[0], 1)) for one in firsts]
        tokens = min(source.encoder.vocab_size for source in (self._source, *(one.candidate.source for one in firsts)))
        speeds: dict[str, dict[int, tuple[float, float, float]]] = {one.name: {} for one in firsts}
        fp32 = {}
        like = self._source.task.features(self._rows.scoring[:1], self._source.encoder)[0]
        for size in BATCHES:
            batch = full_batch(size, self.length, tokens, like=like)
            contestants = [Contestant(model, name, _work(runner, batch)) for model, name, runner in runners]
            title = f"time, batch {size}"
            first = contestants[0].label
            timings = alternate(contestants, first, seconds=SECONDS, title=title, progress=self._progress)
            fastest = min(timings[: len(names)], key=lambda timing: timing.seconds)
            fp32[size] = fastest
            for timing in timings[len(names) :]:
                low, high = (edge / fastest.ratio for edge in timing.spread)
                speeds[timing.model][size] = (timing.ratio / fastest.ratio, low, high)
        used, seconds = (
            {size: one.engine for size, one in fp32.items()},
            {size: one.seconds for size, one in fp32.items()},
        )
        self.fp32 = replace(self.fp32, engines=used, seconds=seconds)
        timed = [replace(one, speed=speeds[alike[_build(one)][0]]) for one in measured]
        return [
            replace(one, evaluation=self._evaluate_twice(one)) if one.candidate.plan.quantizer == DYNAMIC else one
            for one in timed
        ]

    def weigh(self, best: Measured) -> Measured:
        """Measure the memory of FP32, on ONNX Runtime, and of the best, each in a process of its own."""
        pair = best.candidate.pairs()[0]
        graph = best.candidate.folder / pair.graph.path
        before = self._memory(engines.REFERENCE, self._source.fp32.path(GRAPH), "fp32")
        self.fp32 = replace(self.fp32, memory_mb=before)
        return replace(best, memory_mb=self._memory(pair.engine, graph, pair.graph.precision))

    def _memory(self, engine: str, graph: Path, precision: str) -> float | None:
        try:
            return footprint(engine, graph, precision=precision, length=self.length).memory_mb
        except Failure:  # no second process to be had: not a reason to lose the run
            return None

    def test(self, best: Measured) -> Tested | None:
        """Score FP32 and the best on rows that chose nothing."""
        if self._rows.test is None:
            return None
        runner = best.candidate.load(best.candidate.pairs()[0], emulated=self._scratch)
        predictor = self._predictor(runner, best.candidate.source)
        first = score(self.exact, self._rows.test, title="test FP32", progress=self._progress)
        second = score(predictor, self._rows.test, title=f"test {best.name}", progress=self._progress)
        return Tested(first, second, compare(predictor, self._rows.test, first, second))

    def _evaluate_twice(self, one: Measured) -> dict[str, tuple[float, float]]:
        """Seconds to answer the rows before and after, with one thread and with all."""
        examples = self._rows.scoring[:TIMED_ROWS]
        found = {}
        for threads in (1, None):
            exact = self._predictor(engines.load(engines.REFERENCE, self._source.fp32.path(GRAPH), threads=threads))
            other = self._predictor(one.candidate.load(one.candidate.pairs()[0], threads), one.candidate.source)
            both = []
            for predictor in (exact, other):
                answer(predictor, examples[:1])  # what an engine does at its first batch is not the evaluation
                both.append(answer(predictor, examples).seconds)
            found[str(exact.engine.threads)] = (both[0], both[1])
        return found

    def _answer(self, predictor: Predictor, name: str) -> Score | Answers:
        title = f"evaluate {name} on {predictor.engine.name}"
        if self._rows.labelled:
            return score(predictor, self._rows.scoring, title=title, progress=self._progress)
        return answer(predictor, self._rows.scoring, title=title, progress=self._progress)

    def _predictor(self, engine: Engine, source: Source | None = None) -> Predictor:
        source = source or self._source
        return runtime.Predictor(source.task, source.encoder, engine)


def _build(one: Measured) -> tuple[Any, ...]:
    """What decides speed: the model, the plan, the engine, what is integer and which layers are smoothed."""
    made = one.candidate.quant_map
    layers = tuple((name, layer.smooth is None) for name, layer in made.layers.items())
    return one.candidate.source.digest, one.candidate.plan, one.engine, layers, tuple(made.products)


def _work(engine: Any, batch: Any) -> Any:
    return lambda: engine.run(batch)
