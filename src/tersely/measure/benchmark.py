"""Time several systems in one alternating run, so that what slows the machine slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..engines.engine import Batch
from ..errors import UserError, wrong_option
from ..progress import SILENT, Progress
from ..tasks import Feature

WARM_UPS = 3


@dataclass(frozen=True)
class Contestant:
    """A system by name: the model, the engine that runs it, and one unit of its work."""

    model: str
    engine: str
    work: Callable[[], object]

    @property
    def label(self) -> str:
        """Name it in tables and in `--baseline`."""
        return f"{self.model} {self.engine}"


@dataclass(frozen=True)
class Setting:
    """What speed is meant: rows a batch, tokens a row, threads."""

    batch: int
    length: int
    threads: int


@dataclass(frozen=True)
class Timing:
    """Median seconds of a unit of work; median ratio to the baseline's time in the same round, and its spread.

    `spread` holds the 10th and 90th percentile of the rounds' ratios. A ratio above 1 is faster than the baseline.
    `least`: seconds of the fastest round, which other work on the machine disturbs least.
    """

    model: str
    engine: str
    seconds: float
    ratio: float
    spread: tuple[float, float]
    rounds: int
    least: float


@dataclass(frozen=True)
class Cell:
    """A timing, and what it was taken with.

    `length`: tokens a row of a batch; None where the rows of a file, so many `rows`, were answered, texts to answers.
    """

    threads: int
    batch: int
    length: int | None
    timing: Timing
    rows: int | None = None


def alternate(
    contestants: Sequence[Contestant],
    baseline: str,
    *,
    seconds: float = 2.0,
    rounds: int = 7,
    title: str = "benchmark",
    progress: Progress = SILENT,
) -> list[Timing]:
    """Run all in turn, each round beginning with another: `rounds` or more, for `seconds` each, 1000 rounds at most."""
    names = [contestant.label for contestant in contestants]
    if baseline not in names:
        raise UserError(f"The baseline '{baseline}' is not among the contestants: {', '.join(names)}.")
    first = _warm_up(contestants)
    planned = max(rounds, int(seconds * len(contestants) / max(sum(first), 1e-9)) + 1)
    planned = min(planned, 1000)
    times = np.empty((planned, len(contestants)))
    with progress.track(title, planned) as advance:
        for turn in range(planned):
            for place in range(len(contestants)):
                chosen = (turn + place) % len(contestants)
                started = time.perf_counter()
                contestants[chosen].work()
                times[turn, chosen] = time.perf_counter() - started
            advance(1)
    ratios = times[:, [names.index(baseline)]] / times
    low, high = np.percentile(ratios, [10, 90], axis=0)
    return [
        Timing(
            contestant.model,
            contestant.engine,
            statistics.median(times[:, i]),
            statistics.median(ratios[:, i]),
            (float(low[i]), float(high[i])),
            planned,
            float(times[:, i].min()),
        )
        for i, contestant in enumerate(contestants)
    ]


def check_grid(seconds: float, **numbers: Sequence[int]) -> None:
    """Refuse a time and numbers, by their options, that nothing can be timed with."""
    for option, values in numbers.items():
        if min(values, default=0) < 1:
            raise wrong_option(option, f"must hold numbers of at least 1. Got {min(values, default='none')}.")
    if not 0 < seconds < float("inf"):
        raise wrong_option("seconds", f"must be above 0. Got {seconds}.")


def threads_text(count: int) -> str:
    """Say a number of threads.

    >>> threads_text(1), threads_text(2)
    ('1 thread', '2 threads')
    """
    return "1 thread" if count == 1 else f"{count} threads"


def full_batch(rows: int, length: int, vocab_size: int, seed: int = 0, like: Feature | None = None) -> Batch:
    """A batch of random tokens without padding. `like`: whose further inputs are repeated in every row."""
    shape = (rows, length)
    tokens = np.random.default_rng(seed).integers(min(5, vocab_size - 1), vocab_size, shape, dtype=np.int64)
    batch = {
        "input_ids": tokens,
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }
    for name, value in (like.more if like is not None else {}).items():
        if like is not None and name not in batch:
            a_token = value.ndim > 0 and len(value) == len(like)
            row = np.resize(value, (length, *value.shape[1:])) if a_token else value
            batch[name] = np.broadcast_to(row, (rows, *row.shape)).copy()
    return batch


def _warm_up(contestants: Sequence[Contestant]) -> list[float]:
    """Seconds of the last of a few runs of each, the slow ones run once."""
    last = []
    for contestant in contestants:
        spent = 0.0
        for _ in range(WARM_UPS):
            started = time.perf_counter()
            contestant.work()
            took = time.perf_counter() - started
            spent += took
            if spent > 1.0:
                break
        last.append(took)
    return last
