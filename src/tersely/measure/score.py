"""Score a system on labelled rows, and compare two systems row by row.

How far a smaller model says what the FP32 model says shows harm long before a score does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..progress import SILENT, Progress
from ..runtime import Predictor
from ..tasks import Task
from ..tasks.metrics import Metric
from .intervals import Difference, bootstrap, paired


@dataclass(frozen=True)
class Answers:
    """What a system says to rows that need not be labelled. `windows`: of which row each of the logits is."""

    rows: int
    seconds: float
    by_row: list[Any] = field(repr=False)
    logits: list[NDArray[np.float32]] = field(repr=False)
    windows: list[int] = field(repr=False, default_factory=list)


@dataclass(frozen=True)
class Score:
    """The primary metric with its 95 % interval, every other metric, and what they were computed from.

    Values are fractions. `statistics`: the primary metric's [rows, k]; None where it has none, and then `interval` is
    None too, as it is where none was asked for.
    """

    metric: str
    value: float
    interval: tuple[float, float] | None
    metrics: dict[str, float]
    answers: Answers = field(repr=False)
    statistics: NDArray[np.float64] | None = field(repr=False, default=None)

    @property
    def rows(self) -> int:
        """How many rows were scored."""
        return self.answers.rows

    @property
    def seconds(self) -> float:
        """How long it took to answer them."""
        return self.answers.seconds

    def without_answers(self) -> Score:
        """The numbers alone, to be kept for long."""
        return replace(self, answers=Answers(self.rows, self.seconds, [], []), statistics=None)


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
    answers = answer(predictor, examples, title=title, progress=progress)
    task = predictor.task
    primary = task.metrics[task.metric]
    if primary.of_system is not None:
        values = dict(primary.of_system(predictor.engine, examples, answers.logits))
        return Score(task.metric, values[task.metric], None, values, answers)
    statistics = task.statistics(task.metric, examples, answers.by_row)
    values = {}
    for name, metric in task.metrics.items():
        rows = statistics if metric is primary else task.statistics(name, examples, answers.by_row)
        values[name] = float(metric.value(rows.sum(axis=0)))
    interval = bootstrap(statistics, primary.value, resamples=resamples, bounds=primary.bounds) if resamples else None
    return Score(task.metric, values[task.metric], interval, values, answers, statistics)


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


def compare(task: Task, reference: Score | Answers, other: Score | Answers) -> Comparison:
    """How much worse the other system is on the same rows.

    Answers are compared on all; logits on rows that both systems cut into windows of the same lengths: tokenizers may
    differ.
    """
    drop = None
    if isinstance(reference, Score) and isinstance(other, Score):
        drop = _drop(task.metrics[task.metric], reference, other)
    ours, theirs = (scored.answers if isinstance(scored, Score) else scored for scored in (reference, other))
    pairs = [
        pair
        for windows, others in zip(_by_row(ours), _by_row(theirs), strict=True)
        if [window.shape for window in windows] == [window.shape for window in others]
        for pair in zip(windows, others, strict=True)
    ]
    change = None
    if pairs:
        change = mean_abs_logit_change([pair[0] for pair in pairs], [pair[1] for pair in pairs], task.centred_axis)
    return Comparison(drop, same_answer(task.agreement(ours.by_row, theirs.by_row)), change)


def _drop(metric: Metric, reference: Score, other: Score) -> Difference:
    """The drop with its interval; without statistics there is none."""
    if reference.statistics is None or other.statistics is None:
        return Difference((reference.value - other.value) * (1 if metric.greater_is_better else -1))
    return paired(reference.statistics, other.statistics, metric.value, greater_is_better=metric.greater_is_better)


def _by_row(answers: Answers) -> list[list[NDArray[np.float32]]]:
    """Logits of the windows of each row."""
    found: list[list[NDArray[np.float32]]] = [[] for _ in range(answers.rows)]
    for row, logits in zip(answers.windows, answers.logits, strict=True):
        found[row].append(logits)
    return found


def same_answer(agreement: NDArray[np.float64]) -> float:
    """Share of equal parts, from (equal parts, parts) per row [rows, 2]; 1.0 where there is nothing to compare.

    >>> same_answer(np.array([[3.0, 4.0], [4.0, 4.0]]))
    0.875
    """
    equal, parts = np.asarray(agreement, dtype=np.float64).sum(axis=0)
    return float(equal / parts) if parts else 1.0


def mean_abs_logit_change(
    logits: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]], axis: int | None = -1
) -> float:
    """Mean |Δ| over all logits of all features, each centred along `axis`, as softmax does not see a common shift.

    `axis` is that of the softmax: -1 over labels ([labels], [length, labels]), 0 over positions (question answering,
    [length, 2]), None for outputs that are read as they are (regression, sigmoids).

    >>> mean_abs_logit_change([np.array([1.0, 3.0])], [np.array([6.0, 8.5])])
    0.25
    """
    total, count = 0.0, 0
    for before, after in zip(logits, others, strict=True):
        if before.shape != after.shape:
            raise ValueError(f"Logits of one feature have the shapes {before.shape} and {after.shape}.")
        change = after.astype(np.float64) - before
        if axis is not None:
            change -= change.mean(axis=axis, keepdims=True)
        total, count = total + float(np.abs(change).sum()), count + change.size
    return total / count if count else 0.0
