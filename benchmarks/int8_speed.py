"""How much faster INT8 is than the fastest FP32 here, ours and what others make of the same model.

    python benchmarks/int8_speed.py MODELS DATA PEERS [--name mrpc] [--length 128] [--work DIR] [--out FILE]

PEERS/NAME holds what benchmarks/peers.py wrote; a peer that is not there is said. One thread, all contestants in turn.
Takes about 15 minutes on a quiet machine, 10 where --work has the artifacts. To try it: --seconds 0.1 --rows 16.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from peers import PEERS
from subjects import Log, Subject, machine, plain_graph, work_folder

from tersely import artifact as artifacts
from tersely import engines, runtime
from tersely.deploy.systems import tokenize_with
from tersely.engines.cpu import cpu
from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.graphs.write_qdq import write_qdq
from tersely.measure.benchmark import Contestant, Timing, alternate, full_batch
from tersely.quantize.ptq import PtqSettings, ptq
from tersely.quantize.targets import find_targets
from tersely.runtime import Predictor
from tersely.tasks import SequenceClassification

FP32, SHORT = "FP32", "FP32, last layer for [CLS] alone"
OURS, TABLES, LONG = "tersely ptq", "tersely ptq+embeddings", "tersely ptq, whole last layer"
STRATEGIES = {"ptq": OURS, "ptq+embeddings": TABLES}
HALF = "in bf16"
"""What else an engine computes in bf16, and not in FP32: all of an FP32 graph, the float parts of an INT8 one."""
Cells = dict[str, dict[str, Timing]]
"""By cell and contestant."""


def open_all(
    subject: Subject, peers: Path, scratch: Path, log: Log, strategies: Sequence[str]
) -> list[tuple[str, Predictor]]:
    """Everything that takes part, by name."""
    installed = [name for name in engines.installed() if name != "torch"]
    bf16 = cpu().bf16 and "openvino" in installed
    fp32 = subject.export(scratch / "fp32")
    graph = fp32.path(fp32.manifest.graphs[0].path)
    found = [(FP32, runtime.load(fp32.folder, name, 1)) for name in installed]
    exact = found[0][1]

    def load(name: str, path: Path, precision: str) -> Predictor:
        return replace(exact, engine=engines.load(name, path, threads=1, precision=precision))

    # Our INT8 graphs of classifiers hold this lossless pass, the export does not: what it alone brings is shown beside.
    shortens = isinstance(exact.task, SequenceClassification)
    if shortens:
        onnx.save(plain_graph(graph, first_position=True), scratch / "short.onnx")
        found += [(SHORT, load(name, scratch / "short.onnx", "fp32")) for name in installed]
    for strategy in strategies:
        what = STRATEGIES[strategy]
        result = subject.compress(scratch / strategy, "--strategy", strategy)
        best = scratch / strategy / "best"
        chosen = runtime.load(best, threads=1)
        say_result(log, what, result, chosen)
        found.append((what, chosen))
        if what == OURS:
            others = [name for name in installed if name != chosen.engine.name]
            found += [(what, runtime.load(best, name, 1)) for name in others]
            if shortens:
                path = with_whole_last_layer(subject, exact, graph, result["best"], chosen.engine.name, scratch)
                found.append((LONG, load(chosen.engine.name, path, "int8")))
            if bf16:
                shared, _ = runtime.choose(artifacts.read(best), "openvino")
                found.append((f"{FP32} {HALF}", load("openvino", graph, "bf16")))
                found.append((f"{OURS}, float parts {HALF}", load("openvino", best / shared.path, "bf16")))
    for peer in PEERS.values():
        path = peers / subject.name / peer.file
        if not path.is_file() or peer.engine not in installed:
            log(f"{peer.name}: left out, as {peer.file} or {peer.engine} is not there.")
        else:
            found.append((peer.name, load(peer.engine, path, "int8")))
            if bf16 and peer.engine == "openvino":
                found.append((f"{peer.name}, float parts {HALF}", load(peer.engine, path, "bf16")))
    return found


def say_result(log: Log, what: str, result: Mapping[str, Any], chosen: Predictor) -> None:
    best = next(candidate for candidate in result["candidates"] if candidate["name"] == result["best"])
    drop = f"{100 * best['score']:.2f}, drop {100 * best['drop']:.2f} points"
    same = f"{100 * best['same_answer']:.2f} % same answers"
    log(f"{what}: {best['name']} on {chosen.engine.name}; {result['metric']} {drop}, {same}, {best['rows']} dev rows.")


def with_whole_last_layer(
    subject: Subject, exact: Predictor, graph: Path, best: str, engine: str, scratch: Path
) -> Path:
    """The chosen candidate made anew without the pass for the first position."""
    proto = plain_graph(graph, first_position=False)
    algo = re.match(r"\D+", best)
    settings = PtqSettings(algo_list=(algo.group() if algo else "mse",))
    (quant_map,) = ptq(proto, find_targets(proto), subject.samples(exact), settings).values()
    made = write_onnxruntime(proto, quant_map) if engine == "onnxruntime" else write_qdq(proto, quant_map, signed=False)
    onnx.save(made, scratch / "long.onnx")
    return scratch / "long.onnx"


def run_cell(contestants: Sequence[Contestant], seconds: float) -> dict[str, Timing]:
    """Times as × the fastest FP32 engine, in one alternating run."""
    exact = [contestant for contestant in contestants if contestant.model == FP32]
    guess = min(alternate(exact, exact[0].label, seconds=seconds / 2, rounds=3), key=lambda timing: timing.seconds)
    timings = alternate(contestants, f"{guess.model} {guess.engine}", seconds=seconds)
    # Where the guess was wrong the other engine's median is the measure; 1 where it was right.
    fastest = max(timing.ratio for timing in timings if timing.model == FP32)
    return {
        contestant.label: replace(
            timing, ratio=timing.ratio / fastest, spread=(timing.spread[0] / fastest, timing.spread[1] / fastest)
        )
        for contestant, timing in zip(contestants, timings, strict=True)
    }


def run_cells(
    log: Log, found: Sequence[tuple[str, Predictor]], examples: Sequence[Any], length: int, seconds: float
) -> Cells:
    """Full batches of 1 and 16, then real rows, texts to answers; each is logged when it ends."""
    works: dict[str, list[Callable[[], object]]] = {}
    for size in (1, 16):
        batch = full_batch(size, length, found[0][1].encoder.vocab_size)
        works[f"batch {size}, length {length}"] = [runs(predictor, batch) for _, predictor in found]
    works[f"{len(examples)} dev rows, batch 16, mixed lengths"] = [
        answers(predictor, examples) for _, predictor in found
    ]
    cells: Cells = {}
    for title, work in works.items():
        contestants = [
            Contestant(what, predictor.engine.name, do) for (what, predictor), do in zip(found, work, strict=True)
        ]
        cells[title] = cell = run_cell(contestants, seconds)
        quickest = min((timing for timing in cell.values() if timing.model == FP32), key=lambda timing: timing.seconds)
        log(f"{title}: fastest FP32 is {quickest.engine}, {1000 * quickest.seconds:.1f} ms, {quickest.rounds} rounds")
        log("; ".join(f"{label} {timing.ratio:.2f}" for label, timing in cell.items()))
    return cells


def runs(predictor: Predictor, batch: Any) -> Callable[[], object]:
    return lambda: predictor.engine.run(batch)


def answers(predictor: Predictor, examples: Sequence[Any]) -> Callable[[], object]:
    return lambda: predictor.with_batch_size(16).answers(examples)


def show(log: Log, cells: Cells, ours: str) -> None:
    """The table, and ours against the peers."""
    overall = {label: mean(cell[label].ratio for cell in cells.values()) for label in next(iter(cells.values()))}
    log()
    log(f"× the fastest FP32 engine of the cell (10th to 90th percentile of the rounds), one thread, {machine()}")
    log()
    log.head("model, engine", *cells, "geometric mean")
    for label, average in overall.items():
        timings = [cell[label] for cell in cells.values()]
        log.row(label, *(f"{t.ratio:.2f} ({t.spread[0]:.2f} to {t.spread[1]:.2f})" for t in timings), f"{average:.2f}")
    log()
    names = {peer.name for peer in PEERS.values()}
    rivals = [label for label, timing in next(iter(cells.values())).items() if timing.model in names]
    static = [label for label in rivals if label.startswith(PEERS["static"].name)]
    short, long = ([label for label in overall if label.startswith(what)] for what in (SHORT, LONG))
    versus(log, cells, "ours ÷ best peer", ours, rivals)
    versus(log, cells, "ours ÷ quantize_static", ours, static)
    for engine in sorted({timing.engine for timing in next(iter(cells.values())).values()}):
        versus(log, cells, f"ours on {engine} ÷ its FP32", f"{OURS} {engine}", [f"{FP32} {engine}"])
        if engine == "onnxruntime":
            versus(log, cells, f"ours on {engine} ÷ quantize_static", f"{OURS} {engine}", static)
    half = [label for label in overall if label.startswith(f"{FP32} {HALF}")]
    versus(log, cells, "ours ÷ FP32 graph in bf16", ours, half)
    mixed = [label for label in overall if "float parts" in label]
    if mixed:
        versus(log, cells, f"ours with float parts {HALF} ÷ FP32 on openvino", mixed[0], [f"{FP32} openvino"])
        versus(log, cells, f"ours ÷ NNCF, both with float parts {HALF}", mixed[0], mixed[1:])
    versus(log, cells, "ours ÷ FP32 with the same pass over the last layer", ours, short)
    if long:
        versus(log, cells, "ours without that pass ÷ best peer, which has none", long[0], rivals)


def versus(log: Log, cells: Cells, what: str, ours: str, others: Sequence[str]) -> None:
    """One against the best of others: in each cell, and against the one that is best over all cells."""
    if others:
        overall = {label: mean(cell[label].ratio for cell in cells.values()) for label in (ours, *others)}
        parts = [cell[ours].ratio / max(cell[label].ratio for label in others) for cell in cells.values()]
        best = max(others, key=overall.__getitem__)
        shown = ", ".join(f"{part:.2f}" for part in parts)
        log(f"{what}: {shown}; geometric mean {overall[ours] / overall[best]:.2f} (÷ {best})")


def mean(ratios: Any) -> float:
    """Geometric."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("peers", type=Path, help="holds NAME/static.onnx and so on")
    parser.add_argument("--name", default="mrpc")
    parser.add_argument("--length", type=int, default=128, help="of the full batches, in tokens (128)")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--rows", type=int, help="dev rows to time (all)")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each contestant in each cell (5)")
    parser.add_argument("--work", type=Path, help="keep artifacts here, and use those that are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    tokenize_with(1)
    subject, log = Subject.find(args.name, args.models, args.data), Log(args.out)
    options = f" --name {subject.name}" if subject.name != "mrpc" else ""
    options += f" --length {args.length}" if args.length != 128 else ""
    options += f" --strategies {' '.join(args.strategies)}" if args.strategies != list(STRATEGIES) else ""
    log(f"{subject.name}: python benchmarks/int8_speed.py MODELS DATA PEERS{options}")
    with work_folder(args.work) as scratch:
        found = open_all(subject, args.peers, scratch, log, args.strategies)
        examples = subject.examples(found[0][1], args.rows)
        ours = next(f"{what} {predictor.engine.name}" for what, predictor in found if what == OURS)
        show(log, run_cells(log, found, examples, args.length, args.seconds), ours)


if __name__ == "__main__":
    main()
