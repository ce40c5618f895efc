"""What loading a model costs: seconds and memory, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import Failure, UserError


@dataclass(frozen=True)
class Footprint:
    """Seconds to load; resident memory of the process after load and a first batch, and at its peak, in MB (10^6).

    The engine's library itself counts in memory, but not in the seconds.
    """

    load_seconds: float
    memory_mb: float
    peak_memory_mb: float


def footprint(
    engine: str, source: str | Path, *, precision: str = "fp32", threads: int = 1, batch: int = 1, length: int = 128
) -> Footprint:
    """Load a graph or model folder in a fresh process, run one batch, and ask what that took."""
    arguments = [engine, str(source), precision, str(threads), str(batch), str(length)]
    done = subprocess.run([sys.executable, "-m", __name__, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Failure(f"Measuring the footprint of {engine} failed: {last[0]}", where=str(source))
    return Footprint(**json.loads(done.stdout.splitlines()[-1]))


def _measure(engine: str, source: str, precision: str, threads: int, batch: int, length: int) -> Footprint:
    from .. import engines
    from .benchmark import full_batch

    engines.warm(engine)
    # By name, since what measures artifacts does without torch.
    read: Any = import_module("tersely.models.load").load_model if Path(source).is_dir() else str
    started = time.perf_counter()
    loaded = engines.load(engine, read(source), threads=threads, precision=precision)
    seconds = time.perf_counter() - started
    filled = full_batch(batch, length, 1)  # which tokens does not matter, and every vocabulary has the first
    others = {name: filled["token_type_ids"] for name in loaded.inputs if name not in filled}
    loaded.run({**filled, **others})
    return Footprint(seconds, *_memory())


def _memory() -> tuple[float, float]:
    """Resident memory of this process now and at its peak, in MB.

    Linux keeps the parent's peak in `ru_maxrss` over fork and exec, so that its own status file is read.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if line.startswith("Vm"))
        now, peak = (int(lines[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
        return now, peak
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # the field is in bytes there, in KiB elsewhere
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return peak, peak


def main(arguments: list[str]) -> None:
    """Print what loading costs as one line of JSON."""
    engine, source, precision, *numbers = arguments
    threads, batch, length = map(int, numbers)
    try:
        found = _measure(engine, source, precision, threads, batch, length)
    except UserError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(found.__dict__) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
