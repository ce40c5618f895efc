"""Which engine serves a model fastest here: each is timed on small batches of changing shapes, padded as it needs them.

`tersely tune` times one shape at a time. That is what `predict` sees, but not a server: OpenVINO prepares for every
change of shape, which costs it 1 to 2 ms a run on six layers of 384 and so its lead on a VNNI CPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path

import numpy as np

from .. import artifact as artifacts
from .. import engines, runtime
from ..engines.engine import Batch, Engine
from ..measure.benchmark import Contestant, alternate, full_batch
from ..measure.check import runnable
from ..measure.tune import contenders, eligible
from ..runtime.choose import offered_engines
from .batching import COSTS, rounded

SECONDS = 1.0
"""How long each engine is timed, at least `ROUNDS` rounds."""
ROUNDS = 2
ROWS = (1, 2, 1, 4)
RUNS = 12
"""Runs a round, of lengths drawn between an eighth and three quarters of the longest that the model was made for."""
AHEAD = 1.05
"""So many times as fast must another engine be to be taken instead of what `auto` gives."""


def fastest_engines(folders: Mapping[str, Path], threads: int) -> dict[str, str]:
    """Names of models to engines, where there was a choice. In a process of its own: none of it stays in memory."""
    several = {}
    for name, folder in folders.items():
        offered = offered_engines(artifacts.read(folder, verify=False))
        if len(set(offered) & set(engines.installed())) > 1:
            several[name] = str(folder)
    if not several:
        return {}
    request = json.dumps({"folders": several, "threads": threads})
    done = subprocess.run([sys.executable, "-m", __name__, request], capture_output=True, text=True, check=False)
    # An error in a model is reported where it is loaded to be served.
    return dict(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 and done.stdout else {}


def candidates(folder: Path) -> list[str]:
    """Engines here that run the artifact as precisely as the best one does, and answer as recorded; that one first."""
    opened = artifacts.read(folder, verify=False)
    offered = runnable(opened)
    firsts = {pair.engine: pair for pair in reversed(offered)}  # what an engine is given when it is named
    alike = [pair for pair in offered if pair is firsts[pair.engine]]
    alike = [pair for pair in alike if pair.graph.precision == offered[0].graph.precision]
    return [contender.engine for contender in eligible(opened, contenders(alike, bf16=False))[0]]


def timed(folder: Path, threads: int) -> dict[str, float]:
    """Times as fast as what `auto` gives, by engine, `auto` among them."""
    own = runtime.load(folder, threads=threads)
    loaded = {"auto": own.engine} | {
        name: runtime.load(folder, name, threads).engine for name in candidates(folder) if name != own.engine.name
    }
    longest = own.task.max_seq_length
    lengths = np.random.default_rng(0).integers(max(1, longest // 8), 3 * longest // 4 + 2, RUNS)
    contestants = []
    for name, engine in loaded.items():
        padded = [min(rounded(int(length), COSTS[engine.name].step), longest) for length in lengths]
        shapes = zip(cycle(ROWS), padded, strict=False)
        batches = [full_batch(rows, length, own.encoder.vocab_size) for rows, length in shapes]
        contestants.append(Contestant(name, engine.name, _work(engine, batches)))
    timings = alternate(contestants, contestants[0].label, seconds=SECONDS, rounds=ROUNDS)
    return {timing.model: timing.ratio for timing in timings}


def preferred(ratios: Mapping[str, float]) -> str:
    """The fastest, `auto` where no other is clearly faster.

    >>> preferred({"auto": 1.0, "onnxruntime": 1.04}), preferred({"auto": 1.0, "onnxruntime": 1.2})
    ('auto', 'onnxruntime')
    """
    return max(ratios, key=lambda engine: ratios[engine] / (1 if engine == "auto" else AHEAD))


def _work(engine: Engine, batches: list[Batch]) -> Callable[[], object]:
    return lambda: [engine.run(batch) for batch in batches]


def choose_each(folders: Mapping[str, str], threads: int) -> dict[str, str]:
    """Time and choose, model by model; those for which `auto` is as good are left out."""
    chosen = {name: preferred(timed(Path(folder), threads)) for name, folder in folders.items()}
    return {name: engine for name, engine in chosen.items() if engine != "auto"}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(choose_each(**json.loads(sys.argv[1]))) + "\n")
