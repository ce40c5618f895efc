"""What calibration costs: memory as the samples grow, and seconds of a whole grid, beside ONNX Runtime's calibrators.

    python benchmarks/calibration.py MODELS DATA [--out benchmarks/results/calibration.md]

Samples are training texts of MRPC put together and cut to exactly 128 tokens, the same for all. Each figure comes from
a process of its own, bound to one core. Linux only. Takes about 15 minutes. To try it: --few 2 --many 4 --rounds 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import calibrate_once
import numpy as np
from calibrate_once import GRID, LENGTH, resident
from subjects import Log, Subject, machine

from tersely import data, runtime
from tersely.artifact import Artifact
from tersely.quantize.calibrators import CALIBRATORS
from tersely.tasks import Columns

Took = dict[str, float] | None
"""Seconds and peak_mb; None: stopped, as it passed the limit."""


def measure(what: str, graph: Path, samples: Path, count: int, limit_gb: float) -> Took:
    """Run one child; None if it was stopped because it passed the limit."""
    words = [sys.executable, calibrate_once.__file__, what, str(graph), str(samples), str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryFile("w+") as said:
        # Its own diagnostics go to stdout too: only the last line is ours.
        running = subprocess.Popen(words, stdout=said, env=environment)
        while running.poll() is None:
            if resident(str(running.pid), "VmRSS") > 1000 * limit_gb:
                running.kill()
                running.wait()
                return None
            time.sleep(0.1)
        if running.returncode:
            raise SystemExit(f"{what} on {count} samples failed: see above.")
        said.seek(0)
        found: dict[str, float] = json.loads(said.read().splitlines()[-1])
        return found


def write_samples(subject: Subject, fp32: Artifact, count: int, out: Path) -> None:
    """Training texts one after the other, cut to `count` rows of exactly 128 tokens with their special tokens."""
    predictor = runtime.load(fp32.folder, "onnxruntime", 1)
    examples = predictor.task.read(data.read(subject.train), Columns(), labelled=False)
    encoder = predictor.encoder
    tokens = np.concatenate([np.array(text.ids) for text in encoder.plain([example.text for example in examples])])
    room = LENGTH - encoder.single.width
    if len(tokens) < count * room:
        raise SystemExit(f"The training texts give {len(tokens) // room} samples, not {count}.")
    np.save(out, np.stack([encoder.single.around(row)[0] for row in tokens[: count * room].reshape(count, room)]))


def show_memory(log: Log, run: Callable[[str, int], Took], plan: dict[str, tuple[int, int]]) -> None:
    log.head("calibration", "samples", "peak MB", "samples", "peak MB", "ratio")
    for what, counts in plan.items():
        peaks = [found and found["peak_mb"] for found in (run(what, count) for count in counts)]
        shown = ["stopped at the limit" if peak is None else f"{peak:.0f}" for peak in peaks]
        few, many = peaks
        ratio = f"{many / few:.2f}" if few and many else ""
        log.row(what, str(counts[0]), shown[0], str(counts[1]), shown[1], ratio)


def show_cost(log: Log, run: Callable[[str, int], Took], rows: int, rounds: int) -> None:
    """All in turn; on a machine that others share the seconds of CPU are the steadier figure."""
    ours = f"{len(CALIBRATORS)} algorithms × {len(GRID)} sets of up to {rows} rows"
    said = {
        "tersely grid": f"{ours}, all that ptq decides",
        "tersely grid, ranges alone": f"{ours}, ranges",
        "quantize_static Entropy": f"one algorithm, {rows} rows, its graph written",
        "Entropy": f"one algorithm, {rows} rows, ranges",
    }
    names = list(said)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for turn in range(rounds):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            if (found := run(name, rows)) is not None:
                times[name].append((found["seconds"], found["cpu_seconds"]))
    log.head("calibration", "what", "s (least to most)", "s of CPU", "the whole grid's ÷ this", "of CPU")
    grid = middle(times[names[0]])
    for name, what in said.items():
        if not times[name]:
            log.row(name, what, "stopped at the limit", "", "", "")
            continue
        wall, busy = middle(times[name])
        spread = f"{wall:.1f} ({min(times[name])[0]:.1f} to {max(times[name])[0]:.1f})"
        log.row(name, what, spread, f"{busy:.1f}", f"{grid[0] / wall:.2f}", f"{grid[1] / busy:.2f}")


def middle(times: list[tuple[float, float]]) -> tuple[float, float]:
    """Medians of both."""
    wall, busy = zip(*times, strict=True)
    return median(wall), median(busy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--few", type=int, default=16, help="samples of the smaller run (16)")
    parser.add_argument("--many", type=int, default=512, help="samples of our larger run (512); others get a quarter")
    parser.add_argument("--rows", type=int, default=64, help="rows of the grid's largest set (64)")
    parser.add_argument("--rounds", type=int, default=3, help="of the timing, in turn (3)")
    parser.add_argument("--limit_gb", type=float, default=12.0, help="stop what holds more (12)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Log(args.out)
    log(f"python benchmarks/calibration.py MODELS DATA; mrpc, rows of {LENGTH}, one core each, {machine()}")
    few, many = args.few, args.many
    with tempfile.TemporaryDirectory() as scratch:
        subject = Subject.find("mrpc", args.models, args.data)
        fp32, samples = subject.export(Path(scratch) / "fp32"), Path(scratch) / "samples.npy"
        graph = fp32.path(fp32.manifest.graphs[0].path)
        write_samples(subject, fp32, max(many, args.rows), samples)

        def run(what: str, count: int) -> Took:
            return measure(what, graph, samples, count, args.limit_gb)

        log(f"Memory: the process's peak, libraries and model included; stopped above {args.limit_gb:g} GB.")
        theirs = (few, max(many // 4, 1))
        show_memory(log, run, {"tersely": (few, many), "Entropy": theirs, "Percentile": theirs})
        log()
        log("Time:")
        show_cost(log, run, args.rows, args.rounds)


if __name__ == "__main__":
    main()
