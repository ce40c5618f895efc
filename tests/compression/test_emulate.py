"""Scores for CPUs that this machine is not one of: exact sums, computed in floats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compressible import Place
from tersely import engines
from tersely.artifact import read
from tersely.compression.call import compress
from tersely.engines.saturation import saturates
from tersely.graphs.write_emulated import write_emulated
from tersely.measure.check import read_probe
from tersely.runtime.predictor import run

Places = Callable[..., Place]


@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_whole_numbers(bias: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weight = random.integers(-127, 128, (96, 64)).astype(np.int8)
    scales = random.uniform(0.01, 0.02, 64).astype(np.float32)
    shift = random.normal(0, 1, 64).astype(np.float32)
    step, zero = np.float32(1 / 64), np.uint8(100)
    reads = ["codes", "weight", "step", "scales", "zero", *(["", "bias"] if bias else [])]
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("QuantizeLinear", ["numbers", "step", "zero"], ["codes"]),
        helper.make_node("MatMulIntegerToFloat", reads, ["product"], domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["weight", "scales", "zeros"], ["floats"], axis=1),
        helper.make_node("ReduceSum", ["floats"], ["sum"], keepdims=0),
        helper.make_node("Add", ["product", "sum"], ["logits"]),
    ]
    arrays = {
        "weight": weight,
        "scales": scales,
        "bias": shift,
        "step": step,
        "zero": zero,
        "zeros": np.zeros(64, np.int8),
    }
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", 96])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 64])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "int8.onnx")
    write_emulated(tmp_path / "int8.onnx", tmp_path / "new" / "exact.onnx")
    x = random.integers(-1, 3, (5, 96))
    codes = np.clip(np.rint(x / step) + zero, 0, 255).astype(np.int64)
    expected = (codes - int(zero)) @ weight.astype(np.int64) * (step * scales).astype(np.float64)
    expected = expected + (shift if bias else 0) + (weight * scales.astype(np.float64)).sum()
    logits = engines.load("onnxruntime", tmp_path / "new" / "exact.onnx").run({"input_ids": x})[0]
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-4)


def test_full_weights_are_scored_as_the_cpus_they_are_for_would(place: Places, tmp_path: Path) -> None:
    """Emulated scores are those of a CPU with exact sums, whatever this one has; the probe holds its logits too."""
    here = place("TokenClassification")
    result = compress(
        input_infer_model_path=str(here.graph), train_file=here.train, eval_file=here.dev, output_dir=tmp_path / "out",
        cpu_classes="vnni", engines="onnxruntime", algo_list="mse", strategy=["ptq", "dynamic"],
    )  # fmt: skip
    assert {measured.emulated for measured in result.candidates} == {saturates("onnxruntime")}
    assert result.best.candidate.quant_map.cpu_classes == ("amx", "vnni")
    assert min(measured.score.value for measured in result.candidates if measured.score) > 0.95
    artifact = read(result.path)
    probe = read_probe(artifact)
    graph = artifact.path("onnx/model_onnxruntime.onnx")
    exact = engines.load("onnxruntime", write_emulated(graph, tmp_path / "exact.onnx"))
    stored, emulated = probe.logits["int8_onnxruntime"], run(exact, probe.features, probe.pad_id, batch_size=8)
    for logits, other in zip(stored, emulated, strict=True):
        np.testing.assert_allclose(logits[: len(other)], other, atol=1e-3)
