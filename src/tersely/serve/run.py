"""Serve until told to stop: in this process, or in several that share the port."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from uvicorn import Config

from ..errors import UserError
from .app import App
from .connection import LINGER, Connection, PatientServer
from .engine_trial import fastest_engines
from .models import ServedModel, check_folders, open_model
from .server_options import ServerOptions

BACKLOG = 2048
KEEP_ALIVE = 65
"""Seconds for which an idle connection is kept: longer than the minute of most proxies, which then close first."""


def run(options: ServerOptions, started: Callable[[str], None]) -> None:
    """Serve; `started` is called with the address when requests are taken. Ends on SIGTERM or Ctrl-C, all answered."""
    check_folders(options.folders)
    listening = bind(options.host, options.port)
    address = address_of(listening)
    if options.engine == "auto":
        found = fastest_engines(options.folders, options.threads_of_a_stream)
        options = replace(options, engines=found)
    if options.workers == 1:
        models = open_models(options)
        with last_signals() as early:
            serve(models, options, listening, lambda: started(address), early_signals=early)
        return
    from .workers import supervise

    supervise(options, listening, lambda: started(address))


def open_models(options: ServerOptions) -> dict[str, ServedModel]:
    """Load every model that was named, to be kept as long as the process lives."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a few short texts at a time are not worth its threads
    threads, streams = options.threads_of_a_stream, options.streams
    opened = {
        name: open_model(name, folder, options.engines.get(name, options.engine), threads, streams)
        for name, folder in options.folders.items()
    }
    gc.collect()
    gc.freeze()  # looking for garbage in all that is loaded stopped every answer for 40 ms each few seconds
    return opened


def serve(
    models: Mapping[str, ServedModel],
    options: ServerOptions,
    listening: socket.socket,
    started: Callable[[], None],
    wait_for_end: Callable[[], object] | None = None,
    early_signals: Collection[int] = (),
) -> None:
    """Answer requests in this process until a signal comes or `wait_for_end` returns; all that was taken is answered.

    `early_signals` holds those that came before there was a server to heed them.
    """
    limits = options.limits
    app = App(models, limits, options.api_key, options.streams)
    config = Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # nothing here asks who the client is
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=limits.max_connections,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(limits.timeout + limits.client_timeout + LINGER) + 1,
    )

    def drain() -> None:
        app.ready = False

    server = PatientServer(config, limits.client_timeout, drain, started, early_signals)
    if wait_for_end is not None:
        threading.Thread(target=_end_after, args=(wait_for_end, server), daemon=True).start()
    try:
        server.run([listening])
    finally:
        app.close()


@contextmanager
def last_signals() -> Iterator[Collection[int]]:
    """Pass over the signal that stopped uvicorn: it raises it once more at its end, for whoever handled it before.

    Gives the signals that come while uvicorn does not listen for them, as they come: before its start they count.
    """
    came: list[int] = []
    with stop_signals(lambda number, _: came.append(number)):
        yield came


@contextmanager
def stop_signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle SIGTERM and Ctrl-C for a while."""
    with ExitStack() as restored:
        for number in (signal.SIGTERM, signal.SIGINT):
            restored.callback(signal.signal, number, signal.signal(number, handler))
        yield


def bind(host: str, port: int) -> socket.socket:
    """Take the port, before anything is loaded."""
    if not 0 <= port <= 65535:  # the C library would take it modulo 65536
        raise UserError(f"The '--port' option must be from 0 to 65535. Got {port}.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except socket.gaierror:
        raise UserError(f"There is no address '{host}' (option '--host').") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"The port {port} is in use.", hint="Stop what listens there, or name another with --port."
            ) from None
        raise UserError(f"{host} port {port} cannot be listened on: {error.strerror}.") from None
    listening.set_inheritable(True)
    return listening


def address_of(listening: socket.socket) -> str:
    """Where a browser finds the socket."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{host}:{port}"


def _end_after(wait: Callable[[], object], server: PatientServer) -> None:
    wait()
    server.should_exit = True
