"""Artifacts of a two-layer model written by hand: real graphs, ready in a tenth of a second, and what NumPy says."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from models import build_tokenizer
from tersely import engines
from tersely.artifact import Graph, Manifest, read, read_manifest, seal
from tersely.deploy.probe import probe_examples, probe_features, write_probe
from tersely.measure.check import BATCH, read_probe, record_name
from tersely.runtime.predictor import run
from tersely.tasks import Encoder, QuestionAnswering, SequenceClassification, TokenClassification, to_json

PLAIN, OWN, SHARED = "onnx/model.onnx", "onnx/model_onnxruntime.onnx", "onnx/model_quantized.onnx"
TASKS = {
    "text": SequenceClassification(("bad", "fair", "good"), max_seq_length=32),
    "tags": TokenClassification(("O", "B", "I"), max_seq_length=32),
    "question": QuestionAnswering(max_seq_length=64, doc_stride=16),
    "labels": SequenceClassification(
        ("a", "b", "c"), problem="multi_label_classification", max_seq_length=32, metric="micro_f1"
    ),
    "number": SequenceClassification(("x",), problem="regression", max_seq_length=32, metric="pearson"),
}
WIDTH = 64


class Numpy:
    """The model itself: logits = relu(table[ids] · first) · second, their mean where the task answers once."""

    name, precision, threads, inputs, outputs = "numpy", "fp32", 1, ("input_ids", "attention_mask"), ("logits",)

    def __init__(self, vocabulary: int, kind: str, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.kind, width = kind, {"question": 2, "number": 1}.get(kind, 3)
        self.table = random.uniform(0.2, 1.0, (vocabulary, WIDTH)).astype(np.float32)
        # All near full scale, so that 8-bit integers of them saturate sums of 16 bits.
        self.first = (random.uniform(0.8, 1, (WIDTH, WIDTH)) * random.choice([-1, 1], (WIDTH, WIDTH))).astype(
            np.float32
        )
        self.second = random.normal(0, 0.2, (WIDTH, width)).astype(np.float32)

    def run(self, batch: Mapping[str, Any]) -> tuple[Any, ...]:
        logits = np.maximum(self.table[batch["input_ids"]] @ self.first, 0) @ self.second
        if self.kind in ("text", "labels", "number"):
            mask = batch["attention_mask"][..., None].astype(np.float32)
            logits = (logits * mask).sum(1) / mask.sum(1)
        return (logits[..., 0], logits[..., 1]) if self.kind == "question" else (logits,)

    def write(self, path: Path) -> None:
        """Write the same as an ONNX graph."""
        import onnx
        from onnx import TensorProto as T
        from onnx import helper as h
        from onnx import numpy_helper

        path.parent.mkdir(parents=True, exist_ok=True)
        once = self.kind in ("text", "labels", "number")
        nodes = [
            h.make_node("Gather", ["table", "input_ids"], ["embedded"]),
            h.make_node("MatMul", ["embedded", "first"], ["product"]),
            h.make_node("Relu", ["product"], ["hidden"]),
            h.make_node("MatMul", ["hidden", "second"], ["logits" if self.kind == "tags" else "per_token"]),
        ]
        arrays = {"table": self.table, "first": self.first, "second": self.second}
        # Both inputs are used, as the exporter's graphs use them.
        nodes += [h.make_node("Cast", ["attention_mask"], ["mask"], to=T.FLOAT)]
        if once:
            arrays |= {"last": np.array([2]), "along": np.array([1])}
            nodes += [
                h.make_node("Unsqueeze", ["mask", "last"], ["column"]),
                h.make_node("Mul", ["per_token", "column"], ["kept"]),
                h.make_node("ReduceSum", ["kept", "along"], ["sum"], keepdims=0),
                h.make_node("ReduceSum", ["column", "along"], ["count"], keepdims=0),
                h.make_node("Div", ["sum", "count"], ["logits"]),
            ]
        if self.kind == "question":
            arrays |= {"last": np.array([2])}
            nodes += [
                h.make_node("Split", ["per_token"], ["start", "end"], axis=2, num_outputs=2),
                h.make_node("Squeeze", ["start", "last"], ["start_logits"]),
                h.make_node("Squeeze", ["end", "last"], ["end_logits"]),
            ]
        names = ["start_logits", "end_logits"] if self.kind == "question" else ["logits"]
        graph = h.make_graph(
            nodes, "tiny", [h.make_tensor_value_info(name, T.INT64, ["rows", "length"]) for name in self.inputs],
            [h.make_tensor_value_info(name, T.FLOAT, None) for name in names],
            [numpy_helper.from_array(array, name) for name, array in arrays.items()],
        )  # fmt: skip
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), path)


def make(folder: Path, kind: str = "text", *, seed: int = 0) -> Path:
    """An FP32 artifact for a task of `TASKS`, its probe recorded by NumPy."""
    build_tokenizer(folder, "bert")
    encoder, task = Encoder.from_file(folder / "tokenizer.json", 0), TASKS[kind]
    model = Numpy(encoder.vocab_size, kind, seed)
    model.write(folder / PLAIN)
    features = probe_features(task, encoder, probe_examples(task))
    write_probe(folder / "probe.npz", features, 0, fp32=model)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    graphs = (Graph(PLAIN, ("onnxruntime", "openvino"), "fp32"),)
    seal(folder, Manifest(to_json(task), "bert", model.inputs, "int64", 0, graphs))
    return folder


def make_int8(folder: Path, kind: str = "text", *, classes: tuple[str, ...] = ("all",), bits: int = 7) -> Path:
    """An INT8 artifact: u8 (ONNX Runtime's) and s8 (both engines') Q/DQ graphs of it, by ONNX Runtime's own tool."""
    from onnxruntime.quantization import QuantType, quantize_static

    make(folder, kind)
    probe = dict(np.load(folder / "probe.npz"))
    for path, activations in ((OWN, QuantType.QUInt8), (SHARED, QuantType.QInt8)):
        quantize_static(
            folder / PLAIN, folder / path, Rows(probe), op_types_to_quantize=["MatMul"], per_channel=True,
            reduce_range=bits == 7, activation_type=activations, weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True, "ActivationSymmetric": activations == QuantType.QInt8},
        )  # fmt: skip
    (folder / PLAIN).unlink()
    own, shared = (OWN, ("onnxruntime",)), (SHARED, ("openvino", "onnxruntime"))
    reseal(folder, graphs=tuple(Graph(path, names, "int8", classes) for path, names in (own, shared)))
    record(folder)
    return folder


def record(folder: Path) -> None:
    """Write what each graph says on the engine that it was written for to the probe, as the exporter does."""
    opened = read(folder)
    probe = read_probe(opened)
    said = {}
    for graph in opened.manifest.graphs:
        runner = engines.load(graph.engines[0], opened.path(graph.path), threads=1, precision="int8")
        said[record_name(graph)] = run(runner, probe.features, probe.pad_id, batch_size=BATCH)
    arrays = dict(np.load(folder / "probe.npz"))
    longest = arrays["input_ids"].shape[1]
    for name, rows in said.items():
        rows = [np.pad(row, ((0, longest - len(row)), (0, 0))) if row.ndim == 2 else row for row in rows]
        arrays[f"logits_{name}"] = np.stack(rows)
    rewrite_probe(folder, arrays)


def change_weight(folder: Path, path: str, name: str, change: Any) -> None:
    """Change a weight of a graph and seal the artifact again."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(folder / path)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor).copy()), name))
    onnx.save(model, folder / path)
    reseal(folder)


def rewrite_probe(folder: Path, arrays: Mapping[str, Any]) -> None:
    """Put other arrays into the probe and seal the artifact again."""
    np.savez_compressed(folder / "probe.npz", **arrays)
    reseal(folder)


def reseal(folder: Path, **changes: Any) -> None:
    """Seal the folder as it is now, with some of the manifest changed."""
    seal(folder, replace(read_manifest(folder), **changes))


def copy(artifact: Path, folder: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(artifact, folder))


class Rows:
    """The probe's rows for ONNX Runtime's calibration."""

    def __init__(self, probe: Mapping[str, Any]) -> None:
        starts = range(0, len(probe["input_ids"]), 8)
        self._rows = iter([{name: probe[name][i : i + 8] for name in Numpy.inputs} for i in starts])

    def get_next(self) -> Any:
        return next(self._rows, None)
