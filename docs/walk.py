"""The files that a command passes through, in the order in which their functions are first entered.

python docs/walk.py predict smaller/best rows.tsv             a command, run in this process
python docs/walk.py --post smaller/best "A quiet film."       one POST to a server of this process that is up already

A file counts when a function of it is entered; what runs while modules are imported does not count. A room is a package
or a lone module directly under tersely/; it changes where caller and callee lie in different ones.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import tersely
from tersely.cli import main

HOUSE = str(Path(tersely.__file__).resolve().parent) + os.sep
IMPORTING = "<frozen importlib"


@dataclass
class Walk:
    """Files of the package by first entry, and which file called into which: ("", file) for the first call."""

    files: list[str] = field(default_factory=list)
    calls: dict[tuple[str, str], None] = field(default_factory=dict)
    is_on: bool = True
    _here: threading.local = field(default_factory=threading.local)

    def enter(self, frame: FrameType, event: str, _: Any) -> None:
        """What `sys.setprofile` calls."""
        name = frame.f_code.co_filename
        if name.startswith(IMPORTING):
            step = {"call": 1, "return": -1}.get(event, 0)
            self._here.imports = getattr(self._here, "imports", 0) + step
        elif event == "call" and self.is_on and not getattr(self._here, "imports", 0) and (file := of_house(name)):
            self._count(_caller(frame), file)

    def _count(self, caller: str, file: str) -> None:
        if caller != file:
            self.calls[caller, file] = None
        if file not in self.files:
            self.files.append(file)

    def entrances(self) -> list[str]:
        """Files that are entered from another room, by first entry."""
        entered = {file for caller, file in self.calls if caller and room(caller) != room(file)}
        return [file for file in self.files if file in entered]

    def changes(self) -> list[tuple[str, str]]:
        """Rooms that call into each other, each pair once: (caller's room, callee's room)."""
        pairs = [(room(caller), room(file)) for caller, file in self.calls if caller]
        return [*dict.fromkeys(pair for pair in pairs if pair[0] != pair[1])]

    def __str__(self) -> str:
        """One line for each file, then the counts."""
        entrances = self.entrances()
        lines = [f"{number:3} {'*' if file in entrances else ' '} {file}" for number, file in enumerate(self.files, 1)]
        rooms = len({room(file) for file in self.files})
        told = f"{len(self.files)} files in {rooms} rooms; {len(entrances)} of them (*) are entered from another room; "
        return "\n".join(
            [*lines, f"{told}{len(self.changes())} changes of room (a caller's and a callee's, each once)"]
        )


def room(file: str) -> str:
    """The package or lone module directly under tersely/ that a file belongs to.

    >>> room("tasks/metrics/cmrc.py"), room("errors.py")
    ('tasks', 'errors')
    """
    return Path(file).parts[0].removesuffix(".py")


@functools.cache
def of_house(name: str) -> str:
    """A file of the package by its path under tersely/; "" for any other, such as this one by `../../docs/walk.py`."""
    if name.startswith("<"):  # code without a file
        return ""
    path = os.path.realpath(name)
    return path.removeprefix(HOUSE) if path.startswith(HOUSE) else ""


def _caller(frame: FrameType) -> str:
    """The nearest file of the package among the callers; "" where there is none."""
    caller = frame.f_back
    while caller is not None:
        if file := of_house(caller.f_code.co_filename):
            return file
        caller = caller.f_back
    return ""


@contextlib.contextmanager
def traced(walk: Walk) -> Iterator[Walk]:
    """Trace this thread and those that are started meanwhile."""
    threading.setprofile(walk.enter)
    sys.setprofile(walk.enter)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def walk_command(words: list[str]) -> Walk:
    """Run a command."""
    with traced(Walk()) as walk:
        code = main(words)
    if code:
        sys.exit(code)
    return walk


def walk_post(folder: str, text: str) -> Walk:
    """Serve an artifact, post one text that is not traced, then one that is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    walk = Walk(is_on=False)
    address = f"http://127.0.0.1:{port}/models/{Path(folder).resolve().name}"
    asking = threading.Thread(target=_post_twice, args=(walk, address, json.dumps({"data": {"text": [text]}}).encode()))
    asking.start()
    with traced(walk):
        main(["serve", folder, "--port", str(port), "--workers", "1", "--threads", "1"])
    asking.join()
    return walk


def _post_twice(walk: Walk, address: str, body: bytes) -> None:
    try:
        for walk.is_on in (False, True):
            _post(address, body)
        walk.is_on = False
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _post(address: str, body: bytes) -> None:
    """Post as soon as there is a server."""
    while True:
        try:
            urllib.request.urlopen(address, body, timeout=60).close()  # noqa: S310 - this process itself
            return
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            time.sleep(0.1)


if __name__ == "__main__":
    words = sys.argv[1:]
    walk = walk_post(*words[1:]) if words[:1] == ["--post"] else walk_command(words)
    sys.stderr.write(f"{walk}\n")
