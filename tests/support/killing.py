"""Runs `tersely` commands in processes of their own and kills them at given moments.

Most of a short command's time is spent importing torch. So that the moments fall into its work, a server imports
everything once and forks a process for each command: the same code, the same files, and SIGKILL is SIGKILL.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any


class Killer:
    """Starts the server; `run` gives the exit code (-9 if killed) and the seconds it took."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "commands.log"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.server = subprocess.Popen(
            [sys.executable, __file__, str(self.log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )

    def run(self, *argv: str | Path, kill_after: float | None = None) -> tuple[int, float]:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps({"argv": [str(word) for word in argv], "kill_after": kill_after}) + "\n")
        self.server.stdin.flush()
        reply = self.server.stdout.readline()
        if not reply:
            raise RuntimeError(f"The server is gone (exit code {self.server.wait(10)}).")
        code, seconds = json.loads(reply)
        return code, seconds

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(300)


def serve(log: Path) -> None:
    # One thread everywhere: nothing is lost in a fork. Not always the first core: two servers may run.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    for line in sys.stdin:
        request = json.loads(line)
        answer = _run(request["argv"], request["kill_after"], log)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _run(argv: list[str], kill_after: float | None, log: Path) -> tuple[int, float]:
    modules = log.with_suffix(".modules")
    modules.unlink(missing_ok=True)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os._exit(_command(argv, log, modules))
    status = None
    while status is None:
        found, code = os.waitpid(child, os.WNOHANG)
        if found:
            status = os.waitstatus_to_exitcode(code)
        elif kill_after is not None and time.monotonic() - started >= kill_after:
            os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        else:
            time.sleep(0.001)
    seconds = time.monotonic() - started
    if modules.is_file():
        for name in modules.read_text(encoding="utf-8").split():
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
    return status, seconds


def _command(argv: list[str], log: Path, modules: Path) -> int:
    code = 1
    with log.open("a", encoding="utf-8") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        try:
            from tersely.cli import main
            from tersely_quickly import time_shortly

            if argv[0] == "compress":
                time_shortly()
            code = main([*argv, "--debug"])
        except BaseException:  # noqa: BLE001 - the log is where it is looked for
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    modules.write_text("\n".join(_importable()), encoding="utf-8")
    return code


def _importable() -> list[str]:
    loaded: dict[str, Any] = dict(sys.modules)
    return [name for name, module in loaded.items() if getattr(module, "__file__", None)]


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
