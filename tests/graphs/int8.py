"""Maps made by hand and graphs run as they are: what the tests of the INT8 graph writers share."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser
from other_exporters import torchscript, values

from models import SENTENCES, build
from tersely import engines
from tersely.graphs.layers import find_layers, find_products
from tersely.graphs.plain import unfold
from tersely.models.torch_folder import load_module
from tersely.quant_map import QuantLayer, QuantMap, QuantProduct, Range
from tersely.quantize.weights import quantize_tables, quantize_weight

Rows = dict[str, np.ndarray]


@functools.cache
def bert() -> tuple[Any, Rows]:
    """A graph in the form that writers take, and sentences for it; by torch's old exporter, the faster one."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = build(scratch, "bert")
        path = torchscript(load_module(folder), folder / "model.onnx")
        return unfold(onnx.load(path)), sentences(folder)


def sentences(folder: Path, first: int = 0, last: int | None = None) -> Rows:
    """Real sentences as a padded batch, by the model's own tokenizer."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    pad = next(token for token in ("[PAD]", "<pad>") if tokenizer.token_to_id(token) is not None)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(pad), pad_token=pad)
    encoded = tokenizer.encode_batch(list(SENTENCES[first:last]))
    return {
        "input_ids": np.array([row.ids for row in encoded]),
        "attention_mask": np.array([row.attention_mask for row in encoded]),
        "token_type_ids": np.array([row.type_ids for row in encoded]),
    }


def arrays(proto: Any) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def range_of(array: np.ndarray) -> Range:
    return Range(min(float(array.min()), 0), max(float(array.max()), 0))


def make_map(
    proto: Any,
    rows: Mapping[str, np.ndarray],
    *,
    dynamic: bool = False,
    attention: bool = False,
    tables: bool = False,
    smooth: bool = False,
    kind: str = "channel_wise_abs_max",
    cpu_classes: str = "all",
) -> QuantMap:
    """Every layer in INT8, the range of its input being what the rows show."""
    layers, products, held = find_layers(proto), find_products(proto) if attention else [], arrays(proto)
    names = {layer.input for layer in layers} | {side for product in products for side in (product.left, product.right)}
    inner = sorted(names - set(held) - set(rows))
    seen = held | dict(rows) | (values(proto, inner, dict(rows)) if inner else {})
    made = {}
    for layer in layers:
        uses = [seen[other.input] for other in layers if other.name == layer.name]
        joined = np.concatenate([array.reshape(-1, layer.shape[0]) for array in uses])
        # Made from the input alone, so that q, k and v have one; not for a weight that has several inputs.
        divisor = np.sqrt(np.abs(joined).max(axis=0) + 0.1).astype(np.float32) if smooth and len(uses) == 1 else None
        weight = held[layer.name]
        if divisor is not None:
            joined, weight = joined / divisor, weight * divisor[:, None]
        quantized = quantize_weight(weight, kind, cpu_classes=cpu_classes)
        ranged = None if dynamic else range_of(joined)
        made[layer.name] = QuantLayer(ranged, quantized.integers, quantized.scales, divisor)
    ranges = {
        product.name: QuantProduct(range_of(seen[product.left]), range_of(seen[product.right])) for product in products
    }
    return QuantMap(made, quantize_tables(proto)[0] if tables else {}, ranges)


def run(proto: Any, rows: Mapping[str, np.ndarray], folder: Path, engine: str = "onnxruntime") -> np.ndarray:
    """Logits, by the engine as it is shipped."""
    path = folder / f"{len(list(folder.iterdir()))}.onnx"
    path.write_bytes(proto.SerializeToString())
    return engines.load(engine, path, threads=1, precision="int8").run(rows)[0]


def compute(proto: Any, feed: Mapping[str, np.ndarray], **config: str) -> list[np.ndarray]:
    """What ONNX Runtime makes of any graph, float inputs too; `config`: its session's entries."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    for key, value in config.items():
        options.add_session_config_entry(f"session.{key}", value)
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, dict(feed))


def compute_openvino(proto: Any, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    import io

    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(core.read_model(io.BytesIO(proto.SerializeToString())), "CPU", settings)
    answer = compiled(dict(feed))
    return [np.array(answer[port]) for port in compiled.outputs]


COMPUTE: dict[str, Callable[..., list[np.ndarray]]] = {"onnxruntime": compute, "openvino": compute_openvino}


def graph(lines: Sequence[str], weights: Mapping[str, np.ndarray], inputs: str, gives: str = "float[n, o] y") -> Any:
    """A small graph from ONNX text and arrays."""
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> model ({inputs}) => ({gives}) {{ {" ".join(lines)} }}'
    )
    read = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(numpy_helper.from_array(weights[name], name) for name in weights if name in read)
    return made


def count(proto: Any, kind: str) -> int:
    return sum(node.op_type == kind for node in proto.graph.node)
