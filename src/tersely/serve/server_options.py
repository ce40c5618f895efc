"""Options of `tersely serve`: what a request may ask for, where to listen, processes and threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from ..engines.cpu import cpu
from ..errors import UserError

MAX_HEAD = 1 << 16
"""Bytes of a request line with its headers; no client needs a tenth of it."""

DEEPEST = 16
"""Lists and objects within each other; what the routes take has at most five."""

THREADS = 4
"""Threads of a worker where there are many cores: batches of a few short texts do not keep more of them busy."""

STREAMS = 2
"""Batches at once where there are as many threads: while one is tokenized or answered, another runs, and a thread of an
engine that waits for another, which HTTP has pushed aside, is lost. On OpenVINO 0.68 instead of 0.63 of `predict` at 8
clients, 0.90 instead of 0.84 at 64."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a request and of what waits."""

    max_body: int = field(default=1 << 20, metadata={"help": "bytes of a request's body at most (1048576)"})
    max_texts: int = field(default=128, metadata={"help": "texts of a request at most (128)"})
    max_text_length: int = field(default=20_000, metadata={"help": "characters of a text at most (20000)"})
    max_queue: int = field(default=256, metadata={"help": "texts that wait for a model at most; more get 503 (256)"})
    max_connections: int = field(default=1024, metadata={"help": "open connections of a worker at most (1024)"})
    timeout: float = field(default=30.0, metadata={"help": "seconds after which a waiting request gets 504 (30)"})
    client_timeout: float = field(
        default=10.0,
        metadata={"help": "seconds that a client may take to send a request or to take in its answer (10)"},
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not 0 < value < float("inf"):
                raise UserError(f"The '--{each.name}' option must be above 0. Got {value}.")
        if self.max_texts > self.max_queue:
            raise UserError(
                f"The '--max_texts' option is {self.max_texts}, more than may wait ('--max_queue' {self.max_queue}).",
                hint="Such a request would never be taken. Raise --max_queue or lower --max_texts.",
            )


@dataclass(frozen=True)
class ServerOptions:
    """Which folders, by name, where and how; `engines`: the engine of each model whose engines were timed, by name."""

    folders: Mapping[str, Path]
    host: str = "127.0.0.1"
    port: int = 8189
    engine: str = "auto"
    workers: int = 1
    threads: int = 1
    streams: int = 1
    api_key: str | None = field(default=None, repr=False)
    limits: Limits = field(default_factory=Limits)
    engines: Mapping[str, str] = field(default_factory=dict)

    @property
    def threads_of_a_stream(self) -> int:
        """Threads that run one batch."""
        return max(1, self.threads // self.streams)


def share_cores(workers: int | None, threads: int | None, cores: int | None = None) -> tuple[int, int]:
    """Workers and threads of each, so that together they take the cores there are.

    >>> share_cores(None, None, cores=2), share_cores(None, None, cores=16), share_cores(2, None, cores=8)
    ((1, 2), (4, 4), (2, 4))
    """
    for name, value in (("workers", workers), ("threads", threads)):
        if value is not None and value < 1:
            raise UserError(f"The '--{name}' option must be at least 1. Got {value}.")
    cores = cpu().cores if cores is None else cores
    if workers is None:
        workers = max(1, cores // THREADS)
    return workers, threads or max(1, cores // workers)
