"""What `tersely serve` adds to `tersely.runtime`, and how it bears load.

    python benchmarks/serving.py ARTIFACT ROWS [--out benchmarks/results/serving.md] [--parts load one_core memory …]

ARTIFACT is a classifier's (the claim is for INT8 MRPC), ROWS its labelled rows. One worker; traffic stays on 127.0.0.1.
load: closed-loop clients against predict over the same rows, in turn, all on the same cores. one_core: beside a plain
FastAPI handler (needs fastapi), both on one core, clients on another. memory: resident memory over many requests.
overload: four times what it can do. drain: SIGTERM under load. Takes about 25 minutes on a quiet machine.
To try it: --seconds 1 --rounds 1 --requests 500.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from subjects import Log, machine

from tersely import runtime
from tersely.data import read
from tersely.tasks import Columns

PARTS = ("load", "one_core", "memory", "overload", "drain")
CLIENTS = (1, 8, 64)
HERE = Path(__file__).parent
CORES = sorted(os.sched_getaffinity(0))


@contextmanager
def server(command: Sequence[str], cores: set[int] | None = None) -> Iterator[subprocess.Popen[str]]:
    pin = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=pin)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(90)


@contextmanager
def tersely(artifact: Path, *more: str, cores: set[int] | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [
        sys.executable,
        "-m",
        "tersely",
        "serve",
        f"served={artifact}",
        "--port",
        "0",
        "--json",
        "--workers",
        "1",
    ]
    with server([*command, *more], cores) as process:
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()  # type: ignore[union-attr]
            assert line, "the server did not start"
            text += line
        yield json.loads(text)["address"], process


@contextmanager
def fastapi(artifact: Path, cores: set[int]) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with server([sys.executable, str(HERE / "plain_fastapi.py"), str(artifact), str(port)], cores) as process:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert process.poll() is None, "the peer did not start: is fastapi installed?"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"


def ask(address: str, bodies: list[str], clients: int, cores: set[int] | None = None, **more: Any) -> dict[str, Any]:
    """Let clients ask, in a process of their own; see load_client.py."""
    plan = {"address": address, "path": "/models/served", "bodies": bodies, "clients": clients, **more}
    pin = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    command = [sys.executable, str(HERE / "load_client.py")]
    done = subprocess.run(
        command, input=json.dumps(plan), stdout=subprocess.PIPE, text=True, check=True, preexec_fn=pin
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rate(found: Mapping[str, Any]) -> float:
    return len(found["latencies"].get("200", ())) / float(found["seconds"])


def percentile(found: Mapping[str, Any], share: float, status: str = "200") -> float:
    """Milliseconds."""
    return 1000 * float(np.percentile(found["latencies"].get(status, [np.nan]), share))


def errors(found: Mapping[str, Any]) -> int:
    return int(found["lost"]) + sum(len(times) for status, times in found["latencies"].items() if status != "200")


def load(args: argparse.Namespace, bodies: list[str], log: Log) -> None:
    """Closed-loop clients and predict, in turn."""
    predictor = runtime.load(args.artifact)
    examples = predictor.task.read(read(args.rows), Columns(), labelled=False)

    def predicted() -> float:
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < args.seconds:
            predictor.answers(examples)
            count += len(examples)
        return count / (time.perf_counter() - started)

    log(f"predict: {predictor.engine.name}, {predictor.engine.precision}, {predictor.engine.threads} threads, batch 16")
    with tersely(args.artifact) as (address, _):
        with urllib.request.urlopen(f"{address}/models") as said:  # noqa: S310 - our own server
            (model,) = json.load(said)
        log(f"serve: {model['engine']}, {model['precision']}, the engine by its own trial")
        log.head(
            "clients", "predict, rows/s", "serve, requests/s", "share of predict", "spread", "p50, ms", "p99, ms",
            "errors",
        )  # fmt: skip
        for clients in args.clients:
            ask(address, bodies, clients, seconds=args.seconds)  # warm: every shape is prepared once
            predicted()
            rounds = [(predicted(), ask(address, bodies, clients, seconds=args.seconds)) for _ in range(args.rounds)]
            shares = [rate(found) / alone for alone, found in rounds]
            p50, p99 = (float(np.median([percentile(found, share) for _, found in rounds])) for share in (50, 99))
            alone, served = np.median([alone for alone, _ in rounds]), np.median([rate(found) for _, found in rounds])
            log.row(
                f"{clients}", f"{alone:.0f}", f"{served:.0f}", f"{np.median(shares):.2f}",
                f"{min(shares):.2f} to {max(shares):.2f}", f"{p50:.1f}", f"{p99:.1f}",
                f"{sum(errors(found) for _, found in rounds)}",
            )  # fmt: skip


def one_core(args: argparse.Namespace, bodies: list[str], log: Log) -> None:
    """The same beside a plain handler, each alone on one core."""
    mine, theirs = {CORES[0]}, {CORES[-1]}
    log.head("clients, server on one core", "serve, requests/s", "FastAPI, requests/s", "ratio", "serve p99, ms",
             "FastAPI p99, ms")  # fmt: skip
    started = tersely(args.artifact, "--threads", "1", cores=mine)
    with started as (ours, _), fastapi(args.artifact, mine) as peer:
        for clients in args.clients:
            for address in (ours, peer):
                ask(address, bodies, clients, theirs, seconds=args.seconds)
            pairs = [
                [ask(address, bodies, clients, theirs, seconds=args.seconds) for address in (ours, peer)]
                for _ in range(args.rounds)
            ]
            rates = [np.median([rate(pair[i]) for pair in pairs]) for i in (0, 1)]
            tails = [np.median([percentile(pair[i], 99) for pair in pairs]) for i in (0, 1)]
            log.row(
                f"{clients}", f"{rates[0]:.0f}", f"{rates[1]:.0f}", f"{rates[0] / rates[1]:.2f}", f"{tails[0]:.1f}",
                f"{tails[1]:.1f}",
            )  # fmt: skip


def memory(args: argparse.Namespace, bodies: list[str], log: Log) -> None:
    """Resident memory after each tenth of the requests."""
    with tersely(args.artifact) as (address, process):
        found = []
        for _ in range(10):
            ask(address, bodies, 16, requests=args.requests // 10)
            status = Path(f"/proc/{process.pid}/status").read_text()
            found.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
    log.head("requests", *(str(args.requests * i // 10) for i in range(1, 11)))
    log.row("resident, MB", *(f"{value:.0f}" for value in found))


def overload(args: argparse.Namespace, bodies: list[str], log: Log) -> None:
    """Four times what it can do, then what it can do."""
    with tersely(args.artifact) as (address, process):
        ask(address, bodies, 64, seconds=args.seconds)
        before = rate(ask(address, bodies, 64, seconds=args.seconds))
        found = ask(address, bodies, 512, seconds=args.overload_seconds, rate=4 * before)
        after = ask(address, bodies, 64, seconds=args.seconds)
        alive = process.poll() is None
    counts = {status: len(times) for status, times in found["latencies"].items()}
    log.head("asked for", "seconds", "sent", "by status", "lost", "503: p50, p99, most, ms", "200: p50, p99, ms",
             "before, after, requests/s")  # fmt: skip
    refused = ", ".join(f"{percentile(found, share, '503'):.1f}" for share in (50, 99, 100))
    taken = ", ".join(f"{percentile(found, share):.0f}" for share in (50, 99))
    log.row(
        f"4 × {before:.0f} a second", f"{found['seconds']:.0f}", f"{found['sent']}", f"{counts}", f"{found['lost']}",
        refused, taken, f"{before:.0f}, {rate(after):.0f}",
    )  # fmt: skip
    log(f"The process lives: {alive}. Errors afterwards: {errors(after)}.")


def drain(args: argparse.Namespace, bodies: list[str], log: Log) -> None:
    """SIGTERM while 64 clients ask."""
    log.head("SIGTERM under load", "sent", "answered with 200", "lost", "exit code")
    for _ in range(args.rounds):
        with tersely(args.artifact) as (address, process):
            ask(address, bodies, 64, seconds=args.seconds)
            plan = {"address": address, "path": "/models/served", "bodies": bodies, "clients": 64, "seconds": 60}
            command = [sys.executable, str(HERE / "load_client.py")]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients:
                clients.stdin.write(json.dumps(plan))  # type: ignore[union-attr]
                clients.stdin.close()  # type: ignore[union-attr]
                time.sleep(args.seconds)
                process.send_signal(signal.SIGTERM)
                found = json.loads(clients.stdout.read())  # type: ignore[union-attr]
            code = process.wait(90)
        answered = len(found["latencies"].get("200", ()))
        log.row("64 clients", f"{found['sent']}", f"{answered}", f"{found['lost']}", f"{code}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--clients", nargs="+", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=7.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--overload_seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Log(args.out)
    log("python benchmarks/serving.py ARTIFACT ROWS")
    log(machine())
    task = runtime.load(args.artifact).task
    rows = task.read(read(args.rows), Columns(), labelled=False)
    bodies = [json.dumps({"data": {"text": row.text, "text_pair": row.text_pair}}) for row in rows]
    for part in args.parts:
        run = globals()[part]
        log()
        log(run.__doc__)
        run(args, bodies, log)


if __name__ == "__main__":
    main()
