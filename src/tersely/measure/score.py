"""Score a system on labelled rows, and compare two systems row by row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..progress import SILENT, Progress
from ..runtime import Predictor
from ..tasks.task import whole_of
from .fidelity import mean_abs_logit_change, same_answer
from .intervals import Difference, bootstrap, paired


@dataclass(frozen=True)
class Score:
    """The primary metric with its 95 % interval, every other metric, and what they were computed from.

    Values are fractions. `interval` is None where none was asked for, or none can be had (`tasks.task.Whole`).
    """

    metric: str
    value: float
    interval: tuple[float, float] | None
    metrics: dict[str, float]
    rows: int
    seconds: float
    answers: list[Any] = field(repr=False)
    logits: list[NDArray[np.float32]] = field(repr=False)
    windows: list[int] = field(repr=False, default_factory=list)


@dataclass(frozen=True)
class Answers:
    """What a system says to rows that need not be labelled. `windows`: of which row each of the logits is."""

    rows: int
    seconds: float
    answers: list[Any] = field(repr=False)
    logits: list[NDArray[np.float32]] = field(repr=False)
    windows: list[int] = field(repr=False, default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """The drop from a reference with its paired interval (None without labels), and fidelity, which shows more."""

    drop: Difference | None
    same_answer: float
    mean_abs_logit_change: float | None


def score(
    predictor: Predictor,
    examples: Sequence[Any],
    *,
    resamples: int = 2000,
    title: str = "evaluate",
    progress: Progress = SILENT,
) -> Score:
    """Answer every row and compare with its gold; `resamples=0` leaves the interval out."""
    given = answer(predictor, examples, title=title, progress=progress)
    task = predictor.task
    told = given.rows, given.seconds, given.answers, given.logits, given.windows
    if (whole := whole_of(task)) is not None:
        found = dict(whole(predictor.engine, examples, given.logits))
        return Score(task.metric, found[task.metric], None, found, *told)
    values: dict[str, float] = {}
    interval = None
    for name, metric in task.metrics.items():
        statistics = task.statistics(name, examples, given.answers)
        values[name] = float(metric.value(statistics.sum(axis=0)))
        if name == task.metric and resamples:
            interval = bootstrap(statistics, metric.value, resamples=resamples, bounds=metric.bounds)
    return Score(task.metric, values[task.metric], interval, values, *told)


def answer(
    predictor: Predictor, examples: Sequence[Any], *, title: str = "answer", progress: Progress = SILENT
) -> Answers:
    """Answer every row; logits that are not numbers are refused."""
    if not examples:
        raise UserError("There are no rows to score.")
    started = time.perf_counter()
    task = predictor.task
    features = task.features(examples, predictor.encoder)
    with progress.track(title, len(features)) as advance:
        logits = predictor.run(features, advance)
    for feature, row in zip(features, logits, strict=True):
        if not np.isfinite(row).all():
            raise UserError(f"The model gives logits that are not numbers (NaN) for row {feature.example + 1}.")
    answers = task.decode(examples, features, logits)
    windows = [feature.example for feature in features]
    return Answers(len(examples), time.perf_counter() - started, answers, logits, windows)


def compare(
    predictor: Predictor, examples: Sequence[Any], reference: Score | Answers, other: Score | Answers
) -> Comparison:
    """How much worse the other system is on the same rows.

    Answers are compared on all; logits on rows that both systems cut into windows of the same lengths: tokenizers may
    differ.
    """
    task = predictor.task
    drop = None
    if isinstance(reference, Score) and isinstance(other, Score):
        metric = task.metrics[task.metric]
        drop = Difference((reference.value - other.value) * (1 if metric.greater_is_better else -1))
    if drop is not None and whole_of(task) is None:
        ours, theirs = (task.statistics(task.metric, examples, scored.answers) for scored in (reference, other))
        drop = paired(ours, theirs, metric.value, greater_is_better=metric.greater_is_better)
    agreement = task.agreement(reference.answers, other.answers)
    pairs = [
        pair
        for ours, theirs in zip(_by_row(reference), _by_row(other), strict=True)
        if [one.shape for one in ours] == [one.shape for one in theirs]
        for pair in zip(ours, theirs, strict=True)
    ]
    change = None
    if pairs:
        change = mean_abs_logit_change([one for one, _ in pairs], [one for _, one in pairs], task.centred_axis)
    return Comparison(drop, same_answer(agreement), change)


def _by_row(given: Score | Answers) -> list[list[NDArray[np.float32]]]:
    """Logits of the windows of each row."""
    found: list[list[NDArray[np.float32]]] = [[] for _ in range(given.rows)]
    for row, logits in zip(given.windows, given.logits, strict=True):
        found[row].append(logits)
    return found
