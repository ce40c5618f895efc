"""What Prometheus reads: requests, errors, what waits, batch sizes, latencies. Right with several workers too."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Where workers put their numbers, each in files of its own. The client reads this variable when it is imported."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROWS = (1, 2, 4, 8, 16)
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """The numbers of this process. Labels are the names of models served and statuses: no request adds new ones."""

    def __init__(self, waiting: Mapping[str, Callable[[], int]]) -> None:
        self._registry = CollectorRegistry()
        requests, by_status = "Requests answered, by model and status.", ["model", "status"]
        self._requests = Counter("tersely_requests", requests, by_status, registry=self._registry)
        by_model: dict[str, Any] = {"labelnames": ["model"], "registry": self._registry}
        self._errors = Counter("tersely_errors", "Requests answered with a status of 400 or above.", **by_model)
        waits = "Texts taken and not yet answered."
        self._waiting = Gauge("tersely_queue_texts", waits, multiprocess_mode="livesum", **by_model)
        self._batches = Histogram("tersely_batch_rows", "Rows of a batch.", buckets=ROWS, **by_model)
        seconds = "Seconds from a request to its answer."
        self._seconds = Histogram("tersely_request_seconds", seconds, buckets=SECONDS, **by_model)
        self._several = FOLDER in os.environ
        self._read = dict(waiting)
        for name in waiting:  # shown from the start, as zeros
            self._errors.labels(name)
            self._seconds.labels(name)

    def answered(self, model: str, status: int, seconds: float) -> None:
        """Count one request to a model."""
        self._requests.labels(model, str(status)).inc()
        if status >= 400:
            self._errors.labels(model).inc()
        self._seconds.labels(model).observe(seconds)
        if self._several:  # another process may be the one that is asked
            self._waiting.labels(model).set(self._read[model]())

    def batches(self, model: str) -> Callable[[int], None]:
        """What a model's batcher tells the size of each batch."""
        return self._batches.labels(model).observe

    def text(self) -> bytes:
        """All numbers, of all workers, in Prometheus' format."""
        for name, read in self._read.items():
            self._waiting.labels(name).set(read())
        if not self._several:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
