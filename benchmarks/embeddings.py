"""INT8 embedding tables against FP32 tables: speed, size, memory, with all else equal.

    python benchmarks/embeddings.py MODELS DATA [--name mrpc] [--work DIR] [--out benchmarks/results/embeddings.md]

One thread. Noise is what the same FP32-table graph, loaded a second time, shows in the same alternating run. Takes
about 10 minutes on a quiet machine. To try it: --seconds 0.1 --repeats 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import onnx
from subjects import Log, Subject, machine, plain_graph, work_folder

from tersely import engines
from tersely.artifact import Artifact, read
from tersely.engines.cpu import CLASSES
from tersely.measure.benchmark import Contestant, alternate, full_batch
from tersely.measure.footprint import footprint
from tersely.runtime.choose import pairs, ranked
from tersely.runtime.predictor import open_encoder

LENGTH = 128
STRATEGIES = ("embeddings", "ptq", "ptq+embeddings")


def make(subject: Subject, scratch: Path) -> tuple[Artifact, dict[str, Artifact]]:
    """The FP32 artifact, and by strategy those that share one calibration."""
    exported = subject.export(scratch / "fp32")
    flags = [word for strategy in STRATEGIES for word in ("--strategy", strategy)]
    result = subject.compress(scratch / "out", *flags, "--algo_list", "mse")
    by_strategy = {
        candidate["strategy"]: read(scratch / "out" / candidate["path"]) for candidate in result["candidates"]
    }
    return exported, {strategy: by_strategy[strategy] for strategy in STRATEGIES}


def graph_for(opened: Artifact, engine: str) -> Path:
    """The graph that an engine gets."""
    return opened.path(pairs(opened, engine)[0].graph.path)


def show_speed(
    log: Log, made: dict[str, Artifact], short: Path, vocab_size: int, seconds: float, installed: list[str]
) -> None:
    """FP32 tables are 1.00. The FP32 graph has the pass over its last layer that every artifact of compress has."""
    log.head("layers", "engine", "batch", "INT8 tables ×", "noise", "slower by more than noise")
    for engine in installed:
        for layers, before, after in (
            ("FP32", short, graph_for(made["embeddings"], engine)),
            ("INT8", graph_for(made["ptq"], engine), graph_for(made["ptq+embeddings"], engine)),
        ):
            precision = layers.lower()
            runners = [
                engines.load(engine, path, threads=1, precision=kind)
                for path, kind in ((before, precision), (after, "int8"), (before, precision))
            ]
            for size in (1, 16):
                batch = full_batch(size, LENGTH, vocab_size)
                names = ("FP32 tables", "INT8 tables", "FP32 tables again")
                works = [
                    Contestant(name, engine, runs(runner, batch)) for name, runner in zip(names, runners, strict=True)
                ]
                _, tables, noise = alternate(works, works[0].label, seconds=seconds)
                shown = [f"{t.ratio:.3f} ({t.spread[0]:.3f} to {t.spread[1]:.3f})" for t in (tables, noise)]
                log.row(layers, engine, str(size), *shown, "yes" if tables.ratio < noise.spread[0] else "no")


def runs(engine: Any, batch: Any) -> Callable[[], object]:
    return lambda: engine.run(batch)


def show_size(log: Log, exported: Artifact, made: dict[str, Artifact]) -> None:
    """What one CPU class loads, and the whole folder beside it."""
    exact_size = exported.loaded_bytes(exported.manifest.graphs[0])
    log.head("strategy", "CPU class", "loads", "engine", "MB", "% of the FP32 graph", "whole folder MB")
    log.row("FP32", "all", "model.onnx", "any", f"{exact_size / 1e6:.1f}", "100", f"{folder_bytes(exported) / 1e6:.1f}")
    for strategy, opened in made.items():
        folder = f"{folder_bytes(opened) / 1e6:.1f}"
        for name in CLASSES:
            best = ranked(opened.manifest.graphs, lambda *_, name=name: name)[0]
            size = opened.loaded_bytes(best.graph)
            part = f"{100 * size / exact_size:.1f}"
            log.row(strategy, name, Path(best.graph.path).name, best.engine, f"{size / 1e6:.1f}", part, folder)


def folder_bytes(opened: Artifact) -> int:
    return sum(path.stat().st_size for path in opened.folder.rglob("*") if path.is_file())


def show_memory(log: Log, exported: Artifact, made: dict[str, Artifact], repeats: int, installed: list[str]) -> None:
    """Resident after loading and a first batch of one row, in a process of its own, its libraries included."""
    log.head("strategy", "engine", "memory MB", "peak MB", "memory, % of FP32 in the same engine")
    for engine in installed:
        exact = 0.0
        for strategy, opened in {"FP32": exported, **made}.items():
            path, precision = graph_for(opened, engine), "fp32" if strategy == "FP32" else "int8"
            costs = [footprint(engine, path, precision=precision, length=LENGTH) for _ in range(repeats)]
            memory, peak = (
                median(values) for values in zip(*((c.memory_mb, c.peak_memory_mb) for c in costs), strict=True)
            )
            exact = exact or memory
            log.row(strategy, engine, f"{memory:.0f}", f"{peak:.0f}", f"{100 * memory / exact:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--name", default="mrpc")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each contestant in each cell (10)")
    parser.add_argument("--repeats", type=int, default=3, help="processes whose memory is measured (3)")
    parser.add_argument("--work", type=Path, help="keep artifacts here, and use those that are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Log(args.out)
    installed = [name for name in engines.installed() if name != "torch"]
    with work_folder(args.work) as scratch:
        subject = Subject.find(args.name, args.models, args.data)
        exported, made = make(subject, scratch)
        short = scratch / "short.onnx"
        onnx.save(plain_graph(graph_for(exported, installed[0]), first_position=True), short)
        log(f"python benchmarks/embeddings.py MODELS DATA; {subject.name}, one thread, length {LENGTH}, {machine()}")
        log("Size:")
        show_size(log, exported, made)
        log()
        log("Memory, batch 1 (of a table that lies in a mapped file, only the pages that its tokens touch):")
        show_memory(log, exported, made, args.repeats, installed)
        log()
        log("Speed of INT8 tables, × FP32 tables (10th to 90th percentile of the rounds):")
        show_speed(log, made, short, open_encoder(exported).vocab_size, args.seconds, installed)


if __name__ == "__main__":
    main()
