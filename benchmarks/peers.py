"""The INT8 models that others make of the same FP32 graph, and how well each holds.

    python benchmarks/peers.py ARTIFACT TRAIN OUT_DIR [--only NAME …] [--score DEV] [--threads 1]
    python benchmarks/peers.py ARTIFACT TRAIN OUT_DIR --entropy ROWS

TRAIN is a file of training rows or a data set's name; DEV is for scoring alone. Needs onnx; NNCF's also nncf and
openvino. A peer whose package is missing is said and left out. Makes all four in 1 to 4 minutes a model on one core.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tersely import artifact as artifacts
from tersely import data, engines, runtime
from tersely.engines import Batch
from tersely.engines.cpu import cpu
from tersely.measure.score import Score, compare, score
from tersely.runtime import Predictor
from tersely.runtime.predictor import pad
from tersely.tasks import Columns, Feature


@dataclass(frozen=True)
class Peer:
    """How a peer is made, what its file is called, which engine runs it, how many training rows it is shown."""

    name: str
    make: Callable[[Path, Sequence[Batch], Path], None]
    file: str
    engine: str
    packages: tuple[str, ...]
    rows: int = 0


def quantize_static(graph: Path, batches: Sequence[Batch], out: Path) -> None:
    """ONNX Runtime's static quantization with its default arguments: s8, one scale a tensor, min-max."""
    from onnxruntime import quantization

    quantization.quantize_static(graph, out, reader(batches))


def quantize_dynamic(graph: Path, batches: Sequence[Batch], out: Path) -> None:
    """ONNX Runtime's dynamic quantization with its default arguments; looks at no batch."""
    from onnxruntime import quantization

    quantization.quantize_dynamic(graph, out)


def quantize_dynamic_reduced(graph: Path, batches: Sequence[Batch], out: Path) -> None:
    """The same with a scale a channel and 7-bit weights, which AVX2 sums without saturating."""
    from onnxruntime import quantization

    quantization.quantize_dynamic(graph, out, per_channel=True, reduce_range=True)


def nncf_default(graph: Path, batches: Sequence[Batch], out: Path) -> None:
    """NNCF as its users call it on a transformer, with smoothing and bias correction, as OpenVINO's xml and bin."""
    import nncf
    import openvino

    quantized = nncf.quantize(
        openvino.Core().read_model(graph),
        nncf.Dataset(batches),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(batches),
    )
    openvino.save_model(quantized, out, compress_to_fp16=False)  # its default rounds what is not INT8 to FP16


PEERS = {
    "static": Peer("quantize_static, defaults", quantize_static, "static.onnx", "onnxruntime", ("onnx",), 64),
    "dynamic": Peer("quantize_dynamic, defaults", quantize_dynamic, "dynamic.onnx", "onnxruntime", ("onnx",)),
    "dynamic_rr": Peer(
        "quantize_dynamic, per channel, reduce_range",
        quantize_dynamic_reduced,
        "dynamic_rr.onnx",
        "onnxruntime",
        ("onnx",),
    ),
    "nncf": Peer("NNCF, defaults", nncf_default, "nncf.xml", "openvino", ("nncf", "openvino"), 300),
}


@dataclass(frozen=True)
class Calibrated:
    """What an entropy calibration took. The peak is that of the whole process: measure once in each.

    On a machine that others share the seconds of CPU are the steadier figure.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float


def entropy_calibration(graph: Path, batches: Sequence[Batch], out: Path) -> Calibrated:
    """Time quantize_static by entropy, which keeps every activation of every row: all batches of one shape.

    Of matmuls alone: with its default, all operators, NumPy finds no bins for the padding mask's -3.4e38 and it stops
    ("Too many bins for data range", onnxruntime 1.31). So it keeps, and sorts into bins, less than by default.
    ONNX Runtime takes every core that this process may use: bind the process to one for a figure on one thread.
    """
    from onnxruntime import quantization

    started, cpu_started = time.perf_counter(), time.process_time()
    quantization.quantize_static(
        graph,
        out,
        reader(batches),
        op_types_to_quantize=["MatMul", "Gemm"],
        calibrate_method=quantization.CalibrationMethod.Entropy,
    )
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes; bytes on macOS
    return Calibrated(seconds, cpu_seconds, peak / (1e6 if sys.platform == "darwin" else 1e3))


def calibration_batches(
    predictor: Predictor, train: str, count: int, inputs: Sequence[str], *, seed: int = 0, length: int | None = None
) -> list[Batch]:
    """Batches of one training row each, drawn by seed; a long row gives windows, of which `count` are drawn.

    `length`: pad each to it. Else there is no padding, as with NNCF's users, and lengths differ.
    """
    rows = rows_of(train, "train")
    random = np.random.default_rng(seed)
    chosen = rows.select(int(i) for i in random.permutation(len(rows))[:count])
    features = predictor.task.features(predictor.task.read(chosen, Columns(), labelled=False), predictor.encoder)
    if len(features) > count:
        features = [features[i] for i in random.permutation(len(features))[:count]]
    batches = (padded_to(feature, length or len(feature), predictor.encoder.pad_id) for feature in features)
    return [{name: batch[name] for name in inputs} for batch in batches]


def rows_of(name: str, split: str) -> data.Rows:
    """Read a file, or the split of a data set or of a folder."""
    return data.read(name) if Path(name).is_file() else data.read_dataset(name, split)


def padded_to(feature: Feature, length: int, pad_id: int) -> Batch:
    """One row with padding up to a length."""
    padding = ((0, 0), (0, length - len(feature)))
    fillers = {"input_ids": pad_id, "attention_mask": 0, "token_type_ids": 0}
    batch = pad([feature], pad_id)
    return {name: np.pad(values, padding, constant_values=fillers[name]) for name, values in batch.items()}


def reader(batches: Sequence[Batch]) -> Any:
    """Batches as ONNX Runtime's calibration takes them."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        left: Iterator[Batch] = iter(batches)

        def get_next(self) -> Batch | None:
            return next(self.left, None)

    return Reader()


def make(peer: Peer, graph: Path, batches: Sequence[Batch], out: Path) -> Path | None:
    """Write one peer's files and give the graph's place; None, and a line that says so, where a package is missing."""
    missing = [package for package in peer.packages if importlib.util.find_spec(package) is None]
    if missing:
        print(f"{peer.name}: left out, as {', '.join(missing)} is not installed.", flush=True)
        return None
    started = time.perf_counter()
    peer.make(graph, batches, out / peer.file)
    print(f"{peer.name}: {peer.file} in {time.perf_counter() - started:.1f} s from {len(batches)} rows", flush=True)
    return out / peer.file


def table(fp32: Predictor, examples: Sequence[Any], made: Mapping[Peer, Path]) -> None:
    """Print score and fidelity of each, in batches of 16: dynamic ranges are those of a whole batch."""
    print("| model | score | same answer | mean abs. change of a logit | rows | CPU class |")
    print("|---|---|---|---|---|---|")
    reference = score(fp32, examples, resamples=0)
    print(line("FP32, on onnxruntime", reference, 1.0, 0.0), flush=True)
    for peer, path in made.items():
        engine = engines.load(peer.engine, path, threads=fp32.engine.threads, precision="int8")
        scored = score(Predictor(fp32.task, fp32.encoder, engine), examples, resamples=0)
        compared = compare(fp32.task, reference, scored)
        what = f"{peer.name}, on {peer.engine}"
        print(line(what, scored, compared.same_answer, compared.mean_abs_logit_change), flush=True)


def line(what: str, scored: Score, same: float, change: float | None) -> str:
    """One row of the table."""
    metrics = ", ".join(f"{name} {100 * value:.2f}" for name, value in scored.metrics.items())
    shown = "" if change is None else f"{change:.4f}"
    return f"| {what} | {metrics} | {100 * same:.2f} % | {shown} | {scored.rows} | {cpu().cpu_class} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path, help="an FP32 artifact of `tersely export`")
    parser.add_argument("train", help="training rows: a file, or a data set's name or folder")
    parser.add_argument("out", type=Path, help="where the peers go")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--score", metavar="DEV", help="dev rows, named like TRAIN: score each peer")
    parser.add_argument("--threads", type=int, default=1, help="of scoring (1)")
    parser.add_argument("--entropy", type=int, metavar="ROWS", help="only time quantize_static by entropy on ROWS rows")
    parser.add_argument("--seed", type=int, default=0, help="draws the training rows (0)")
    args = parser.parse_args()
    seed = args.seed
    args.out.mkdir(parents=True, exist_ok=True)
    opened = artifacts.read(args.artifact)
    graph, inputs = opened.path(runtime.choose(opened, "onnxruntime")[0].path), opened.manifest.inputs
    fp32 = runtime.load(args.artifact, "onnxruntime", threads=args.threads)
    if args.entropy:
        longest = fp32.task.max_seq_length
        batches = calibration_batches(fp32, args.train, args.entropy, inputs, seed=seed, length=longest)
        took = entropy_calibration(graph, batches, args.out / "entropy.onnx")
        seconds = f"{took.seconds:.1f} s ({took.cpu_seconds:.1f} s of CPU)"
        print(f"entropy, {len(batches)} rows of {longest}: {seconds}, peak {took.peak_mb:.0f} MB")
        return
    made = {}
    for name in args.only:
        peer = PEERS[name]
        batches = calibration_batches(fp32, args.train, peer.rows, inputs, seed=seed) if peer.rows else []
        made[peer] = make(peer, graph, batches, args.out)
    if args.score:
        examples = fp32.task.read(rows_of(args.score, "dev"), Columns(), labelled=True)
        table(fp32, examples, {peer: path for peer, path in made.items() if path is not None})


if __name__ == "__main__":
    main()
