"""Dynamic batching: a thread for each stream of a model takes what waits, puts like lengths together and runs them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from ..errors import UserError
from ..runtime import Predictor
from ..runtime.batches import pad
from ..tasks import Feature, Task
from .limits import Limits, Refusal
from .plan import COSTS, next_batch, rounded

YOUNGER = 0.01
"""Seconds by which each further row of a request counts as younger: one with many rows lets others in between."""

PLANNED = 64
"""Rows, the oldest, among which a batch is chosen."""

logger = logging.getLogger("tersely.serve")


class Job:
    """The rows of one request. `answers` is set when all of them are there, or why there are none."""

    __slots__ = ("answers", "arrived", "examples", "features", "left", "logits", "loop", "over", "task")

    def __init__(self, task: Task, examples: Sequence[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.task, self.examples, self.loop = task, examples, loop
        self.answers: asyncio.Future[list[Any]] = loop.create_future()
        self.arrived = time.monotonic()
        self.over = False
        self.features: list[Feature] = []
        self.logits: list[Any] = []
        self.left = 0


@dataclass(frozen=True, slots=True)
class _Row:
    """One feature that waits; `turn` is when it counts as having arrived."""

    turn: float
    length: int
    place: int
    job: Job


class Batcher:
    """Answers jobs on one predictor, in a thread of its own for each of the engine's streams.

    A lone job is run at once: nothing waits for company, but what arrives while the engine works goes in together.
    """

    def __init__(
        self,
        predictor: Predictor,
        limits: Limits,
        *,
        longest: int | None = None,
        streams: int = 1,
        on_batch: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._predictor, self._limits, self._on_batch = predictor, limits, on_batch
        self._longest = longest or 1 << 30
        self._costs = COSTS[predictor.engine.name]
        self._overhead = self._costs.overhead * predictor.engine.threads  # the others have nothing to do meanwhile
        self._arrivals: SimpleQueue[Job | None] = SimpleQueue()
        self._rows: list[_Row] = []
        self._closing = False
        self.waiting = 0
        """Texts taken and not yet answered; written by the event loop's thread alone."""
        self._turn, self._count = threading.Lock(), threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, name="tersely-batcher", daemon=True) for _ in range(streams)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def full(self) -> bool:
        """Whether not even one text more may wait."""
        return self.waiting >= self._limits.max_queue

    def refuse_if_full(self, texts: int = 1) -> None:
        """Answer 503 at once where so many more texts may not wait."""
        if self.waiting + texts > self._limits.max_queue:
            raise Refusal(503, "Too many requests wait for this model. Try again.", {"retry-after": "1"})

    async def answer(self, task: Task, examples: Sequence[Any]) -> list[Any]:
        """Answers to examples, or `Refusal`: 503 where too many wait, 504 where it took too long."""
        self.refuse_if_full(len(examples))
        loop = asyncio.get_running_loop()
        job = Job(task, examples, loop)
        self.waiting += len(examples)
        clock = loop.call_later(self._limits.timeout, self._expire, job)
        self._arrivals.put(job)
        try:
            return await job.answers
        finally:
            clock.cancel()
            job.over = True
            self.waiting -= len(examples)

    def close(self) -> None:
        """End the threads once all that waits is answered."""
        self._arrivals.put(None)
        for thread in self._threads:
            thread.join()

    def _expire(self, job: Job) -> None:
        if not job.answers.done():
            waited = f"{self._limits.timeout:g}"
            job.answers.set_exception(Refusal(504, f"No answer within {waited} seconds: too much waits."))

    def _work(self) -> None:
        while True:
            with self._turn:  # held while nothing is there to be done: then there is nothing for the others either
                self._take()
                chosen = self._chosen() if self._rows else []
                over = self._closing and not self._rows
            if chosen:
                self._run(chosen)
            elif over:
                return

    def _take(self) -> None:
        """Read what has arrived; with nothing to do, wait for it."""
        arrived: list[Job] = []
        try:
            while True:
                job = self._arrivals.get(block=not (self._rows or arrived or self._closing))
                if job is None:
                    self._closing = True
                else:
                    arrived.append(job)
        except Empty:
            pass
        if any(row.job.over for row in self._rows):
            self._rows = [row for row in self._rows if not row.job.over]
        groups: dict[int, list[Job]] = {}
        for job in arrived:
            if not job.over:
                groups.setdefault(id(job.task), []).append(job)
        for jobs in groups.values():
            self._tokenize(jobs)

    def _tokenize(self, jobs: list[Job]) -> None:
        """Texts to pieces, those of all jobs in one call; a job that cannot be does not take others with it."""
        task = jobs[0].task
        examples = [example for job in jobs for example in job.examples]
        try:
            features = task.features(examples, self._predictor.encoder)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread lives on
            if len(jobs) > 1:
                for job in jobs:
                    self._tokenize([job])
            else:
                self._fail(jobs[0], error)
            return
        owners = [(job, first) for job, first in zip(jobs, _firsts(jobs), strict=True) for _ in job.examples]
        for feature in features:
            job, first = owners[feature.example]
            if first:
                feature = Feature(
                    feature.example - first, feature.input_ids, feature.token_type_ids, feature.alignment, feature.more
                )
            place = len(job.features)
            length = min(rounded(len(feature), self._costs.step), max(self._longest, len(feature)))
            self._rows.append(_Row(job.arrived + place * YOUNGER, length, place, job))
            job.features.append(feature)
        for job in jobs:
            job.left = len(job.features)
            job.logits = [None] * job.left
            if not job.left:  # no text at all
                self._deliver([job])

    def _chosen(self) -> list[_Row]:
        """Take the next batch out of the rows: the one that the row whose turn it is belongs to."""
        self._rows.sort(key=lambda row: row.turn)
        oldest = self._rows[:PLANNED]
        lengths = [row.length for row in oldest]
        batch = next_batch(lengths, 0, self._predictor.max_batch_tokens, self._overhead, self._costs.sizes)
        for index in reversed(batch):
            del self._rows[index]
        return [oldest[index] for index in batch]

    def _run(self, rows: list[_Row]) -> None:
        features = [row.job.features[row.place] for row in rows]
        try:
            padded = pad(features, self._predictor.encoder.pad_id, max(row.length for row in rows))
            outputs = self._predictor.engine.run(padded)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread lives on
            for job in {row.job for row in rows}:
                self._fail(job, error)
            return
        self._on_batch(len(rows))
        logits = outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
        done = []
        for number, row in enumerate(rows):
            job = row.job
            job.logits[row.place] = logits[number] if logits.ndim == 2 else logits[number, : len(features[number])]
            with self._count:  # another stream may have the rest of its rows
                job.left -= 1
                if not job.left:
                    done.append(job)
        self._deliver(done)

    def _deliver(self, jobs: list[Job]) -> None:
        decoded: list[tuple[Job, list[Any] | Exception]] = []
        for job in jobs:
            try:
                decoded.append((job, job.task.decode(job.examples, job.features, job.logits)))
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread lives on
                self._fail(job, error)
        if decoded:
            _hand_over(decoded)

    def _fail(self, job: Job, error: Exception) -> None:
        job.over = True
        if isinstance(error, UserError):
            refusal = Refusal(422, str(error))
        else:
            logger.error("a batch failed", exc_info=error)
            refusal = Refusal(500, "The model failed on this request. The server's log says more.")
        _hand_over([(job, refusal)])


def _firsts(jobs: Sequence[Job]) -> list[int]:
    """Where the examples of each job begin among those of all."""
    firsts, count = [], 0
    for job in jobs:
        firsts.append(count)
        count += len(job.examples)
    return firsts


def _hand_over(results: Sequence[tuple[Job, list[Any] | Exception]]) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop has ended: nobody waits any more
        results[0][0].loop.call_soon_threadsafe(_settle, results)


def _settle(results: Sequence[tuple[Job, list[Any] | Exception]]) -> None:
    """Hand results to those who wait, in the event loop's thread."""
    for job, result in results:
        if job.answers.done():
            continue
        if isinstance(result, Exception):
            job.answers.set_exception(result)
        else:
            job.answers.set_result(result)
