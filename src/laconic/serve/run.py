"""Serve until told to stop: in this process, or in several that share the port."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

from uvicorn import Config

from ..errors import UserError
from .app import App
from .connection import LINGER, Connection, PatientServer
from .models import check_folders, open_model
from .settings import Settings

BACKLOG = 2048
KEEP_ALIVE = 65
"""Seconds for which an idle connection is kept: longer than the minute of most proxies, which then close first."""


def run(settings: Settings, started: Callable[[str], None]) -> None:
    """Serve; `started` is told the address when requests are taken. Ends on SIGTERM or Ctrl-C, all answered."""
    check_folders(settings.folders)
    listening = bind(settings.host, settings.port)
    address = address_of(listening)
    if settings.workers == 1:
        serve(settings, listening, lambda: started(address))
        return
    from .workers import supervise

    supervise(settings, listening, lambda: started(address))


def serve(settings: Settings, listening: socket.socket, started: Callable[[], None], parent: Any | None = None) -> None:
    """Load the models and answer requests in this process; `parent`: end when this one does."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a few short texts at a time are not worth its threads
    logging.getLogger("laconic.serve").setLevel(logging.INFO)
    models = {
        name: open_model(name, folder, settings.engine, settings.threads) for name, folder in settings.folders.items()
    }
    app = App(models, settings.limits, settings.api_key)
    limits = settings.limits
    config = Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=limits.max_connections,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(limits.timeout + limits.client_timeout + LINGER) + 1,
    )

    def drain() -> None:
        app.ready = False

    server = PatientServer(config, limits.client_timeout, drain, started)
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent, server), daemon=True).start()
    # uvicorn raises the signal that stopped it once more at its end, for whoever handled it before: nothing is left
    # to do then, and the process ends as usual.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run([listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        app.close()


def bind(host: str, port: int) -> socket.socket:
    """Take the port, before anything is loaded."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OverflowError:
        raise UserError(f"The '--port' option must be from 0 to 65535. Got {port}.") from None
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


def _end_with(parent: Any, server: PatientServer) -> None:
    parent.join()
    server.should_exit = True
