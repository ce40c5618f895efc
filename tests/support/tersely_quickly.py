"""`tersely` in a process of its own whose runs of compress are timed shortly; scripts and pages of tests call it.

python tersely_quickly.py compress …      as a process that imports everything itself
write_commands(folder, socket)            a `tersely` for shells, a fork of a server that has torch already (`serve`)
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exported_once import export_once

SECONDS = 0.01
"""How long each candidate is timed: a hundredth of what users get. What is timed does not matter to tests."""
PYTHON = "run_python"
CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = json.dumps({{"argv": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}}).encode()
    socket.send_fds(server, [len(asked).to_bytes(8, "big") + asked], [0, 1, 2])
    sys.exit(int(server.recv(16) or b"70"))
"""
"""Hands its words, folder and streams to the server, and gives the exit code that comes back."""


def time_shortly() -> None:
    """From now on in this process."""
    from tersely.compression import evaluator, shape_timer

    evaluator.SECONDS = shape_timer.SECONDS = SECONDS
    shape_timer.SHARES = ()


def write_commands(folder: Path, address: Path) -> Path:
    """A `tersely` for a shell to find first, and `run_python CODE`: the folder to put before all others."""
    folder.mkdir(parents=True)
    for name in ("tersely", PYTHON):
        (folder / name).write_text(CLIENT.format(python=sys.executable, address=str(address)))
        (folder / name).chmod(0o755)
    return folder


@contextlib.contextmanager
def server() -> Iterator[Path]:
    """The address of a server that forks a `tersely` for each client: the same code without seconds of imports."""
    with tempfile.TemporaryDirectory() as folder:  # a short path: a socket's has 107 characters at most
        address = Path(folder) / "socket"
        child = subprocess.Popen([sys.executable, __file__, "--serve", str(address)], stdin=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 600
            while not address.exists():
                assert child.poll() is None, "the server is gone"
                assert time.monotonic() < until
                time.sleep(0.01)
            yield address
        finally:
            child.terminate()
            child.wait(300)


def serve(address: str) -> None:
    """Import what commands need, once; then one fork after the other."""
    for name in (
        "tersely.cli",
        "tersely.paddle_api",
        "onnxscript",
        "openvino",
        "transformers.models.auto.modeling_auto",
    ):
        importlib.import_module(name)
    time_shortly()
    export_once()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{address}.unready")
        listening.listen()
        Path(f"{address}.unready").rename(address)
        while True:
            client, _ = listening.accept()
            if os.fork() == 0:
                os._exit(_answer(client))
            client.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _answer(client: socket.socket) -> int:
    data, streams, _, _ = socket.recv_fds(client, 65536, 3)
    size = int.from_bytes(data[:8], "big")
    while len(data) < size + 8:
        data += client.recv(65536)
    request: dict[str, Any] = json.loads(data[8:])
    threading.Thread(target=_end_with, args=(client,), daemon=True).start()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    name = Path(request["argv"][0]).name
    sys.argv = [name, *request["argv"][1:]]
    code: Any = 1
    try:
        if name == PYTHON:
            code = _run(sys.argv.pop())
        else:
            from tersely.cli import main

            code = main()
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:  # noqa: BLE001 - where the command would have reported it
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    client.sendall(str(int(code)).encode())
    return 0


def _run(code: str) -> int:
    exec(compile(code, "<docs>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the docs' own
    return 0


def _end_with(client: socket.socket) -> None:
    """Whoever ends the client means the command."""
    if not client.recv(1):
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    from tersely.cli import main

    if sys.argv[1:2] == ["compress"]:  # the others need not import it
        time_shortly()
        export_once()
    sys.exit(main())
