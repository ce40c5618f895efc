"""What `tersely serve` was told, and what it chooses where it was told nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..engines.cpu import cpu
from ..errors import UserError
from .limits import Limits

THREADS = 4
"""Threads of a worker where there are many cores: batches of a few short texts do not keep more of them busy."""

STREAMS = 2
"""Batches at once where there are as many threads: while one is tokenized or answered, another runs, and a thread of an
engine that waits for another, which HTTP has pushed aside, is lost. On OpenVINO 0.68 instead of 0.63 of `predict` at 8
clients, 0.90 instead of 0.84 at 64."""


@dataclass(frozen=True)
class Settings:
    """Which folders, by name, where and how; `engines`: of those that were tried, by name."""

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
