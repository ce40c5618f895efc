"""One calibration in a process of its own, bound to one core; prints its seconds and peak memory as JSON.

    python benchmarks/calibrate_once.py WHAT GRAPH SAMPLES.npy COUNT

Called by benchmarks/calibration.py. Imports little, as what it imports counts in its memory. Linux only.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from peers import entropy_calibration, reader
from subjects import plain_graph

from tersely.engines import Batch
from tersely.quantize.calibrators import CALIBRATORS
from tersely.quantize.ptq import PtqSettings, ptq, settle_ranges
from tersely.quantize.samples import Samples
from tersely.quantize.targets import find_targets
from tersely.tasks import Feature

LENGTH = 128
GRID = {"4_1": 4, "4_4": 16, "4_16": 64}
"""Three sets of rows as `--batch_size_list 4 --batch_num_list 1 4 16` gives them."""

Ids = NDArray[np.int64]
"""Token ids [samples, length]."""


def ours(graph: Path, ids: Ids) -> None:
    """Everything that ptq decides by default, from reading the graph; writing graphs is not in it."""
    proto = plain_graph(graph, first_position=True)
    ptq(proto, find_targets(proto), samples_of(ids, {"all": len(ids)}), PtqSettings())


def grid(graph: Path, ids: Ids) -> None:
    """The same for seven algorithms times three sets of rows."""
    proto = plain_graph(graph, first_position=True)
    algos = tuple(CALIBRATORS)
    maps = ptq(proto, find_targets(proto), samples_of(ids, grid_sets(ids)), PtqSettings(algo_list=algos))
    assert len(maps) == len(algos) * len(GRID)


def grid_ranges(graph: Path, ids: Ids) -> None:
    """Only the ranges of that grid, which is what ONNX Runtime's calibrators give: no smoothing, no weights."""
    proto = plain_graph(graph, first_position=True)
    settle_ranges(
        proto, find_targets(proto), samples_of(ids, grid_sets(ids)), PtqSettings(algo_list=tuple(CALIBRATORS)), {}
    )


def samples_of(ids: Ids, sets: dict[str, int]) -> Samples:
    """Rows without padding, as calibration takes them."""
    features = [Feature(row, tokens, np.zeros_like(tokens)) for row, tokens in enumerate(ids)]
    return Samples(features, [], sets, 0)


def grid_sets(ids: Ids) -> dict[str, int]:
    """The sets of `GRID`, smaller in proportion where there are fewer rows."""
    largest = max(GRID.values())
    return {name: max(1, size * len(ids) // largest) for name, size in GRID.items()}


def calibrator(method: str) -> Callable[[Path, Ids], None]:
    """ONNX Runtime's alone, over its matmuls: ranges, and no graph written."""

    def calibrate(graph: Path, ids: Ids) -> None:
        from onnxruntime import quantization

        with tempfile.TemporaryDirectory() as scratch:
            made = quantization.create_calibrator(
                graph,
                ["MatMul", "Gemm"],
                augmented_model_path=f"{scratch}/augmented.onnx",
                calibrate_method=quantization.CalibrationMethod[method],
            )
            made.collect_data(reader(batches(ids)))
            made.compute_data()

    return calibrate


def quantize_static(graph: Path, ids: Ids) -> None:
    """ONNX Runtime's whole quantize_static by entropy, over its matmuls."""
    with tempfile.TemporaryDirectory() as scratch:
        entropy_calibration(graph, batches(ids), Path(scratch) / "entropy.onnx")


def batches(ids: Ids) -> list[Batch]:
    """One row each, none padded."""
    ones, zeros = np.ones((1, LENGTH), np.int64), np.zeros((1, LENGTH), np.int64)
    return [{"input_ids": row[None], "attention_mask": ones, "token_type_ids": zeros} for row in ids]


WORK: dict[str, Callable[[Path, Ids], None]] = {
    "tersely": ours,
    "tersely grid": grid,
    "tersely grid, ranges alone": grid_ranges,
    "Entropy": calibrator("Entropy"),
    "Percentile": calibrator("Percentile"),
    "quantize_static Entropy": quantize_static,
}


def resident(process: str, field: str) -> float:
    """Memory of a process in MB (10^6): VmRSS now, VmHWM at its peak; 0 where it has just ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field)), 0.0)


def main() -> None:
    what, graph, samples, count = sys.argv[1:]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # both sides take every core they may use: one
    ids = np.load(samples)[: int(count)]
    started, cpu_started = time.perf_counter(), time.process_time()
    WORK[what](Path(graph), ids)
    took = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu_started}
    print(json.dumps({**took, "peak_mb": resident("self", "VmHWM")}))


if __name__ == "__main__":
    main()
