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

from ..engines import ENGINES
from ..errors import UserError
from ..runtime import Predictor
from ..runtime.predictor import pad
from ..tasks import Feature, Task
from .request import Refusal
from .server_options import Limits

YOUNGER = 0.01
"""Seconds by which each further row of a request counts as younger: one with many rows lets others in between."""

PLANNED = 64
"""Rows, the oldest, among which a batch is chosen."""

COSTS = {name: facts.costs for name, facts in ENGINES.items() if facts.costs is not None}
"""What a batch costs, by engine that serves."""

logger = logging.getLogger("tersely.serve")


class PendingRequest:
    """The rows of a request. `answers` is set when all of them are there, or why there are none."""

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
    request: PendingRequest


class Batcher:
    """Answers requests on one predictor, in a thread of its own for each of the engine's streams.

    A lone request is run at once: nothing waits for company, but what arrives while the engine works goes in together.
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
        self._arrivals: SimpleQueue[PendingRequest | None] = SimpleQueue()
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

    def refuse_if_full(self, texts: int = 1) -> None:
        """Answer 503 at once where so many more texts may not wait."""
        if self.waiting + texts > self._limits.max_queue:
            raise Refusal(503, "Too many requests wait for this model. Try again.", {"retry-after": "1"})

    async def answer(self, task: Task, examples: Sequence[Any]) -> list[Any]:
        """Answers to examples, or `Refusal`: 503 where too many wait, 504 where it took too long."""
        self.refuse_if_full(len(examples))
        loop = asyncio.get_running_loop()
        request = PendingRequest(task, examples, loop)
        self.waiting += len(examples)
        clock = loop.call_later(self._limits.timeout, self._expire, request)
        self._arrivals.put(request)
        try:
            return await request.answers
        finally:
            clock.cancel()
            request.over = True
            self.waiting -= len(examples)

    def close(self) -> None:
        """End the threads once all that waits is answered."""
        self._arrivals.put(None)
        for thread in self._threads:
            thread.join()

    def _expire(self, request: PendingRequest) -> None:
        if not request.answers.done():
            waited = f"{self._limits.timeout:g}"
            request.answers.set_exception(Refusal(504, f"No answer within {waited} seconds: too much waits."))

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
        arrived: list[PendingRequest] = []
        try:
            while True:
                request = self._arrivals.get(block=not (self._rows or arrived or self._closing))
                if request is None:
                    self._closing = True
                else:
                    arrived.append(request)
        except Empty:
            pass
        self._rows = [row for row in self._rows if not row.request.over]
        groups: dict[int, list[PendingRequest]] = {}
        for request in arrived:
            if not request.over:
                groups.setdefault(id(request.task), []).append(request)
        for requests in groups.values():
            self._tokenize(requests)

    def _tokenize(self, requests: list[PendingRequest]) -> None:
        """Texts to tokens, those of all requests in one call; a request that cannot be does not take others with it."""
        task = requests[0].task
        examples = [example for request in requests for example in request.examples]
        try:
            features = task.features(examples, self._predictor.encoder)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread lives on
            if len(requests) > 1:
                for request in requests:
                    self._tokenize([request])
            else:
                self._fail(requests[0], error)
            return
        owners: list[tuple[PendingRequest, int]] = []  # of each example, with the place of its request's first one
        for request in requests:
            owners += [(request, len(owners))] * len(request.examples)
        for feature in features:
            request, first = owners[feature.example]
            if first:
                feature = Feature(
                    feature.example - first, feature.input_ids, feature.token_type_ids, feature.alignment, feature.more
                )
            place = len(request.features)
            length = min(rounded(len(feature), self._costs.step), max(self._longest, len(feature)))
            self._rows.append(_Row(request.arrived + place * YOUNGER, length, place, request))
            request.features.append(feature)
        for request in requests:
            request.left = len(request.features)
            request.logits = [None] * request.left
            if not request.left:  # no text at all
                self._deliver([request])

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
        features = [row.request.features[row.place] for row in rows]
        try:
            padded = pad(features, self._predictor.encoder.pad_id, max(row.length for row in rows))
            outputs = self._predictor.engine.run(padded)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread lives on
            for request in {row.request for row in rows}:
                self._fail(request, error)
            return
        self._on_batch(len(rows))
        logits = outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
        done = []
        for number, row in enumerate(rows):
            request = row.request
            request.logits[row.place] = logits[number] if logits.ndim == 2 else logits[number, : len(features[number])]
            with self._count:  # another stream may have the rest of its rows
                request.left -= 1
                if not request.left:
                    done.append(request)
        self._deliver(done)

    def _deliver(self, requests: list[PendingRequest]) -> None:
        decoded: list[tuple[PendingRequest, list[Any] | Exception]] = []
        for request in requests:
            try:
                decoded.append((request, request.task.decode(request.examples, request.features, request.logits)))
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread lives on
                self._fail(request, error)
        if decoded:
            _hand_over(decoded)

    def _fail(self, request: PendingRequest, error: Exception) -> None:
        request.over = True
        if isinstance(error, UserError):
            refusal = Refusal(422, str(error))
        else:
            logger.error("a batch failed", exc_info=error)
            refusal = Refusal(500, "The model failed on this request. The server's log says more.")
        _hand_over([(request, refusal)])


def _hand_over(results: Sequence[tuple[PendingRequest, list[Any] | Exception]]) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop has ended: nobody waits any more
        results[0][0].loop.call_soon_threadsafe(_settle, results)


def _settle(results: Sequence[tuple[PendingRequest, list[Any] | Exception]]) -> None:
    """Hand results to those who wait, in the event loop's thread."""
    for request, result in results:
        if request.answers.done():
            continue
        if isinstance(result, Exception):
            request.answers.set_exception(result)
        else:
            request.answers.set_result(result)


def rounded(length: int, step: int = 1) -> int:
    """The length that a row is padded to: a multiple of `step`, beyond 16 of them an eighth of the power of two below.

    >>> [rounded(length, 16) for length in (3, 64, 65, 129, 300)]
    [16, 64, 80, 144, 320]
    """
    if step > 1:
        step = max(step, (1 << (max(1, length - 1).bit_length() - 1)) // 8)
    return -(-length // step) * step


def next_batch(lengths: Sequence[int], first: int, max_tokens: int, overhead: int, sizes: Sequence[int]) -> list[int]:
    """Indices of the batch that row `first` belongs to when all rows are cut into batches at the least cost.

    Rows are sorted by length; a batch costs its rows times its longest, and `overhead`. Exact, by dynamic programming.
    `sizes` ascend from 1.

    >>> next_batch([64, 64, 8, 8, 8, 8], first=3, max_tokens=1024, overhead=32, sizes=(1, 2, 4))
    [2, 3, 4, 5]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    least = [0.0] * (len(order) + 1)
    last = [1] * (len(order) + 1)
    for end, index in enumerate(order, 1):
        longest = lengths[index]
        best, chosen = least[end - 1] + longest, 1
        for size in sizes[1:]:
            if size > end or size * longest > max_tokens:
                break
            cost = least[end - size] + size * longest
            # Of two that cost the same the larger: those who wait longer are answered sooner.
            if cost <= best:
                best, chosen = cost, size
        least[end], last[end] = best + overhead, chosen
    end = len(order)
    while True:
        batch = order[end - last[end] : end]
        if first in batch:
            return sorted(batch)
        end -= last[end]
