"""Several processes on one port: the first one loads nothing, starts the others, and starts anew one that died."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from ..artifact import FormatWarning
from ..errors import Failure, UserError
from .metrics import FOLDER
from .run import last_signals, open_models, serve, stop_signals
from .server_options import ServerOptions

PAUSE = 1.0
"""Seconds before a worker that died is started anew."""


def supervise(options: ServerOptions, listening: socket.socket, started: Callable[[], None]) -> None:
    """Run the workers until a signal says stop; all that they took is answered.

    They share one listening socket: what a worker that dies had not yet accepted, the others do.
    """
    with tempfile.TemporaryDirectory(prefix="tersely-metrics-") as folder:
        os.environ[FOLDER] = folder
        try:
            _Workers(options, listening).run(started)
        finally:
            del os.environ[FOLDER]


class _Workers:
    def __init__(self, options: ServerOptions, listening: socket.socket) -> None:
        self._options, self._listening = options, listening
        self._context = multiprocessing.get_context("spawn")  # engines' threads do not survive a fork
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._stop_writer.setblocking(False)

    def run(self, started: Callable[[], None]) -> None:
        with stop_signals(self._stop):
            workers = [self._start() for _ in range(self._options.workers)]
            try:
                if self._all_ready(workers):
                    started()
                    self._keep(workers)
            finally:
                self._end(workers)

    def _start(self) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(self._options, self._listening, theirs), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _all_ready(self, workers: list[tuple[BaseProcess, Connection]]) -> bool:
        """Wait until every worker has loaded its models; False where a signal came first."""
        for process, said in workers:
            if self._stop_reader in wait([said, self._stop_reader]):
                return False
            try:
                word = said.recv()
            except EOFError:
                process.join()
                raise Failure(f"A worker ended while it started (exit code {process.exitcode}).") from None
            if isinstance(word, UserError):
                raise word
        return True

    def _keep(self, workers: list[tuple[BaseProcess, Connection]]) -> None:
        while True:
            sentinels: list[Any] = [process.sentinel for process, _ in workers]
            if self._stop_reader in wait([*sentinels, self._stop_reader]):
                return
            for place, (process, _) in enumerate(workers):
                if process.exitcode is None:
                    continue
                sys.stderr.write(
                    f"tersely: worker {process.pid} ended (exit code {process.exitcode}): a new one starts\n"
                )
                # What it had waiting no longer counts; its requests do.
                mark_process_dead(process.pid or 0)  # type: ignore[no-untyped-call]
                if self._stop_reader in wait([self._stop_reader], timeout=PAUSE):
                    return
                workers[place] = self._start()

    def _end(self, workers: list[tuple[BaseProcess, Connection]]) -> None:
        self._listening.close()  # else what arrives now would wait for nobody
        for process, _ in workers:
            if process.is_alive():
                process.terminate()
        limits = self._options.limits
        latest = time.monotonic() + limits.timeout + limits.client_timeout + 5
        for process, _ in workers:
            process.join(max(0.0, latest - time.monotonic()))
            if process.is_alive():
                process.kill()

    def _stop(self, *_: Any) -> None:
        with contextlib.suppress(BlockingIOError):  # told already, many times over
            self._stop_writer.send(b"x")


def _work(options: ServerOptions, listening: socket.socket, said: Connection) -> None:
    """Be a worker: say when requests are taken, or what was wrong."""
    parent = multiprocessing.parent_process()
    warnings.simplefilter("ignore", FormatWarning)  # the first process, which reads the manifests, has shown it
    try:
        models = open_models(options)  # a signal that comes meanwhile ends the process
    except UserError as error:
        said.send(error)
        return
    with last_signals() as early:
        serve(models, options, listening, lambda: said.send("ready"), parent.join if parent else None, early)
