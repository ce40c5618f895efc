"""Servers for tests, in a thread of this process or in processes of their own, and a plain client."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tersely.serve.models import ServedModel, open_model
from tersely.serve.run import address_of, bind, serve
from tersely.serve.server_options import Limits, ServerOptions


@dataclass(frozen=True)
class Said:
    """An answer: its status, its headers by lower-case name, its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    address: str
    pid: int = 0

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.removeprefix("http://").partition(":")
        return host, int(port)

    def ask(self, path: str, body: Any = None, method: str | None = None, headers: Mapping[str, str] = {}) -> Said:
        """GET, or POST of a JSON value or of bytes."""
        connection = http.client.HTTPConnection(*self.place, timeout=30)
        try:
            raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method or ("GET" if raw is None else "POST"), path, raw, dict(headers))
            answer = connection.getresponse()
            return Said(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.place, timeout=30)


class _Until:
    """Something to join: the end of a test."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def join(self) -> None:
        self.over.wait()


@contextmanager
def in_thread(
    folders: Mapping[str, Path], limits: Limits | None = None, api_key: str | None = None, engine: Any = None
) -> Iterator[Served]:
    """Serve artifacts from this process. `engine` makes another engine of the one that was loaded."""
    models = {name: open_model(name, folder, threads=1) for name, folder in folders.items()}
    if engine is not None:
        models = {name: _with(model, engine(model.predictor.engine)) for name, model in models.items()}
    settings = ServerOptions(folders, port=0, api_key=api_key, limits=limits or Limits())
    listening, until, ready = bind(settings.host, 0), _Until(), threading.Event()
    address = address_of(listening)
    thread = threading.Thread(target=serve, args=(models, settings, listening, ready.set, until.join))
    thread.start()
    try:
        assert ready.wait(30)
        yield Served(address)
    finally:
        until.over.set()
        thread.join(60)
    assert not thread.is_alive()


@contextmanager
def in_process(*words: str | Path, **environment: str) -> Iterator[tuple[Served, subprocess.Popen[str]]]:
    """Run `tersely serve` itself, on a free port; it is stopped at the end if it still runs."""
    command = [sys.executable, "-m", "tersely", "serve", *map(str, words), "--port", "0", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    assert process.stdout is not None
    try:
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            text += line
        said = json.loads(text)
        yield Served(said["address"], said["pid"]), process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def _with(model: ServedModel, engine: Any) -> ServedModel:
    return replace(model, predictor=replace(model.predictor, engine=engine))
