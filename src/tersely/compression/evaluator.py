"""Candidates are scored on the engine that will run them, compared with FP32, timed in one alternating run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import engines
from ..deploy.export import GRAPH
from ..engines.engine import Engine
from ..errors import Failure
from ..measure.benchmark import Contestant, Setting, Timing, alternate, full_batch
from ..measure.check import record_name
from ..measure.footprint import footprint
from ..measure.score import Answers, Comparison, Score, answer, compare, score
from ..models.families.family import longest
from ..models.folder import read_config
from ..runtime import Predictor
from ..runtime.choose import Pair
from ..strategy import DYNAMIC
from . import choice
from .candidate import Candidate, write_candidate
from .choice import Measured, Ratio, screen
from .draw import screening_rows
from .parents import Parent, RunContext

BATCHES, LENGTH = (1, 16), 128
SECONDS = 1.0
"""How long each model is timed at each batch size, at least."""
TIMED_ROWS = 1000
"""Rows of the table that dynamic prints, at most: its four evaluations are not to take longer than all else."""


@dataclass(frozen=True)
class Baseline:
    """The FP32 model: its answers, its score where rows are labelled, its size in bytes; its fastest engines."""

    answers: Answers = field(repr=False)
    score: Score | None
    size: int
    engines: dict[int, str] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    memory_mb: float | None = None


@dataclass(frozen=True)
class Tested:
    """FP32 and the best on rows that chose nothing."""

    fp32: Score
    best: Score
    comparison: Comparison


class Evaluator:
    """One set of rows and the user's FP32 model on it; every candidate is measured against that, pruned or not.

    A candidate's own tokenizer encodes the rows. Answers are labels, tags and spans of the text, which do not depend on
    it; logits are compared for those rows that both tokenizers cut into windows of the same lengths. `screened`:
    candidates that were dropped after they were compared on a few rows.
    """

    def __init__(self, origin: Parent, run: RunContext) -> None:
        self._origin, self._run, self._rows = origin, run, run.rows
        self._emulated = run.scratch / "emulated"
        self._graph = origin.fp32.path(GRAPH)
        self._exact = _predictor(origin, engines.load(engines.REFERENCE, self._graph))
        size = origin.fp32.loaded_bytes(origin.fp32.manifest.graphs[0])
        self.fp32 = Baseline(*self._answer(self._exact, "FP32"), size)
        scoring = run.rows.scoring
        self._few = [scoring[i] for i in screening_rows(np.arange(len(scoring)), run.options.seed)]
        self._few_answers: Answers | None = None
        self.screened: list[Measured] = []
        here = read_config(origin.fp32.folder)
        self._length = min(LENGTH, origin.task.max_seq_length, longest(here) or LENGTH)

    def measure_all(self, candidates: Sequence[Candidate]) -> list[Measured]:
        """Write and score candidates; of many only those that are left after a comparison on a few rows."""
        wanted = self._run.options.engines or engines.installed(engines.GRAPH_ENGINES)
        places = self._run.scratch / "candidates"
        written = [write_candidate(candidate, places / candidate.name, wanted) for candidate in candidates]
        if len(written) > choice.MANY:
            seen = [self._look(candidate) for candidate in written]
            kept = screen(seen)
            listed = ", ".join(kept)
            self._run.progress.say(f"Of {len(written)} candidates {len(kept)} are scored on all rows: {listed}.")
            for measured in seen:
                if measured.name not in kept:
                    self.screened.append(measured)
                    shutil.rmtree(measured.candidate.folder)
            written = [candidate for candidate in written if candidate.name in kept]
        return [self.measure(candidate) for candidate in written]

    def runners(self, candidate: Candidate) -> dict[str, Engine]:
        """What a probe records: the FP32 model that the candidate was made of, and each graph of the candidate.

        Each graph on the engine that suits it best; with exact sums where this CPU has none.
        """
        own = candidate.parent.digest == self._origin.digest
        graph = candidate.parent.fp32.path(GRAPH)
        found = {"fp32": self._exact.engine if own else engines.load(engines.REFERENCE, graph)}
        if all(graph.precision == "fp32" for graph in candidate.graphs):
            return found
        for pair in candidate.pairs():
            if (name := record_name(pair.graph)) not in found:
                found[name] = candidate.load(pair, emulated=self._emulated)
        return found

    def time(self, candidates: Sequence[Measured], target: Setting | None = None) -> list[Measured]:
        """Time one candidate of each plan and build against every FP32 engine; the others are as fast.

        With one thread and both batch sizes; and at `target`, the setting that pruning aims at, where there is one.
        """
        first_alike: dict[tuple[Any, ...], Measured] = {}
        for measured in candidates:
            first_alike.setdefault(_build(measured), measured)
        firsts = list(first_alike.values())
        usual = [Setting(size, self._length, 1) for size in BATCHES]
        settings = [*usual, *([target] if target and target not in usual else [])]
        timed = {setting: self._time_at(setting, firsts) for setting in settings}
        fp32 = {setting.batch: timed[setting][0] for setting in usual}
        used = {size: timing.engine for size, timing in fp32.items()}
        self.fp32 = replace(self.fp32, engines=used, seconds={size: timing.seconds for size, timing in fp32.items()})
        found = []
        for measured in candidates:
            first = first_alike[_build(measured)].name
            speed = {setting.batch: timed[setting][1][first] for setting in usual}
            measured = replace(measured, speed=speed, speedup=timed[target][1][first] if target else None)
            dynamic = measured.candidate.plan.quantizer == DYNAMIC
            found.append(replace(measured, evaluation=self._evaluate_twice(measured)) if dynamic else measured)
        return found

    def _time_at(self, setting: Setting, firsts: Sequence[Measured]) -> tuple[Timing, dict[str, Ratio]]:
        """The fastest FP32 engine, and how many times as fast each candidate is, in one alternating run."""
        names, threads = engines.installed(engines.GRAPH_ENGINES), setting.threads
        runners = [("FP32", name, engines.load(name, self._graph, threads=threads)) for name in names]
        runners += [
            (measured.name, measured.engine, measured.candidate.load(measured.candidate.pairs()[0], threads))
            for measured in firsts
        ]
        models = (self._origin, *(measured.candidate.parent for measured in firsts))
        tokens = min(model.encoder.vocab_size for model in models)
        like = self._origin.task.features(self._rows.scoring[:1], self._origin.encoder)[0]
        batch = full_batch(setting.batch, setting.length, tokens, like=like)
        contestants = [Contestant(model, name, partial(runner.run, batch)) for model, name, runner in runners]
        title, first = f"time, batch {setting.batch}", contestants[0].label
        timings = alternate(contestants, first, seconds=SECONDS, title=title, progress=self._run.progress)
        fastest = min(timings[: len(names)], key=lambda timing: timing.seconds)
        ratios = {}
        for timing in timings[len(names) :]:
            low, high = (edge / fastest.ratio for edge in timing.spread)
            ratios[timing.model] = (timing.ratio / fastest.ratio, low, high)
        return fastest, ratios

    def weigh(self, best: Measured) -> Measured:
        """Measure the memory of FP32, on ONNX Runtime, and of the best, each in a process of its own."""
        pair = best.candidate.pairs()[0]
        graph = best.candidate.folder / pair.graph.path
        self.fp32 = replace(self.fp32, memory_mb=self._memory(engines.REFERENCE, self._graph, "fp32"))
        return replace(best, memory_mb=self._memory(pair.engine, graph, pair.graph.precision))

    def test(self, best: Measured) -> Tested | None:
        """Score FP32 and the best on rows that chose nothing."""
        rows, progress = self._rows.test, self._run.progress
        if rows is None:
            return None
        _, predictor = self._best_pair(best.candidate)
        first = score(self._exact, rows, title="test FP32", progress=progress)
        second = score(predictor, rows, title=f"test {best.name}", progress=progress)
        return Tested(first, second, compare(predictor.task, first, second))

    def _look(self, candidate: Candidate) -> Measured:
        """Compare a candidate with FP32 on a few rows."""
        if self._few_answers is None:
            self._few_answers = answer(self._exact, self._few)
        pair, predictor = self._best_pair(candidate)
        answers = answer(predictor, self._few)
        compared = compare(predictor.task, self._few_answers, answers)
        return Measured(candidate, pair.engine, answers, None, compared, candidate.size(pair.graph), not pair.fits)

    def measure(self, candidate: Candidate) -> Measured:
        """Score a candidate that was written on the engine that the runtime would choose here."""
        pair, predictor = self._best_pair(candidate)
        answers, scored = self._answer(predictor, candidate.name)
        task = predictor.task
        comparison = compare(task, self.fp32.score or self.fp32.answers, scored or answers)
        size, sign = candidate.size(pair.graph), 1 if task.metrics[task.metric].greater_is_better else -1
        return Measured(candidate, pair.engine, answers, scored, comparison, size, not pair.fits, sign=sign)

    def _best_pair(self, candidate: Candidate) -> tuple[Pair, Predictor]:
        """The graph and engine that the runtime would choose here, and what runs them."""
        pair = candidate.pairs()[0]
        return pair, _predictor(candidate.parent, candidate.load(pair, emulated=self._emulated))

    def _memory(self, engine: str, graph: Path, precision: str) -> float | None:
        try:
            return footprint(engine, graph, precision=precision, length=self._length).memory_mb
        except Failure:  # no second process to be had: not a reason to lose the run
            return None

    def _evaluate_twice(self, measured: Measured) -> dict[str, tuple[float, float]]:
        """Seconds to answer the rows before and after, with one thread and with all."""
        examples = self._rows.scoring[:TIMED_ROWS]
        found = {}
        for threads in (1, None):
            exact = _predictor(self._origin, engines.load(engines.REFERENCE, self._graph, threads=threads))
            other = _predictor(
                measured.candidate.parent, measured.candidate.load(measured.candidate.pairs()[0], threads)
            )
            both = []
            for predictor in (exact, other):
                answer(predictor, examples[:1])  # what an engine does at its first batch is not the evaluation
                both.append(answer(predictor, examples).seconds)
            found[str(exact.engine.threads)] = (both[0], both[1])
        return found

    def _answer(self, predictor: Predictor, name: str) -> tuple[Answers, Score | None]:
        title, progress = f"evaluate {name} on {predictor.engine.name}", self._run.progress
        if self._rows.labelled:
            scored = score(predictor, self._rows.scoring, title=title, progress=progress)
            return scored.answers, scored
        return answer(predictor, self._rows.scoring, title=title, progress=progress), None


def _predictor(parent: Parent, engine: Engine) -> Predictor:
    return Predictor(parent.task, parent.encoder, engine)


def _build(measured: Measured) -> tuple[Any, ...]:
    """What decides speed: the model, the plan, the engine, what is integer and which layers are smoothed."""
    made = measured.candidate.quant_map
    layers = tuple((name, layer.smooth is None) for name, layer in made.layers.items())
    return measured.candidate.parent.digest, measured.candidate.plan, measured.engine, layers, tuple(made.products)
