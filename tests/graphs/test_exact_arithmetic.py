"""Answers do not depend on the CPU: the default weights give here what sums in 32 bits give anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from int8 import COMPUTE, arrays, bert, compute, graph, make_map
from onnx import TensorProto, helper

from saturating import exact
from tersely.engines.saturation import saturates
from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.graphs.write_qdq import write_qdq
from tersely.quant_map import QuantLayer, QuantMap, QuantProduct, Range
from tersely.quantize.weights import quantize_weight, unsafe_pairs

PRECISE = {"x64quantprecision": "1"}
"""ONNX Runtime's own way out on CPUs that saturate: slower kernels that sum in 32 bits."""

CHOICES = [{}, {"attention": True, "tables": True, "smooth": True}, {"kind": "abs_max"}, {"dynamic": True}]
BY_CHOICE = pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: "-".join(choice) or "layers")


def fused(choice: dict[str, Any]) -> tuple[Any, dict[str, np.ndarray]]:
    proto, rows = bert()
    feed = {value.name: rows[value.name] for value in proto.graph.input}
    return write_onnxruntime(proto, make_map(proto, rows, **choice)), feed


def in_32_bits(proto: Any) -> Any:
    """The graph with each integer product as one of float64 numbers, which holds such sums exactly.

    What follows the sum is done in float32, in ONNX Runtime's order, so that rounding does not tell them apart.
    """
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    nodes = []
    for node in proto.graph.node:
        if node.op_type != "MatMulIntegerToFloat":
            nodes.append(node)
            continue
        out = node.output[0]
        left, right, left_step, right_step, *rest = node.input
        zeros = [*rest, "", "", ""][:2]
        bias = [*rest, "", "", ""][2]
        sides = []
        for side, zero in ((left, zeros[0]), (right, zeros[1])):
            sides.append(f"{out}/{side}/double")
            if zero:
                nodes.append(helper.make_node("Cast", [side], [f"{out}/{side}/codes"], to=TensorProto.DOUBLE))
                nodes.append(helper.make_node("Cast", [zero], [f"{out}/{zero}/zero"], to=TensorProto.DOUBLE))
                nodes.append(helper.make_node("Sub", [f"{out}/{side}/codes", f"{out}/{zero}/zero"], sides[-1:]))
            else:
                nodes.append(helper.make_node("Cast", [side], sides[-1:], to=TensorProto.DOUBLE))
        nodes.append(helper.make_node("MatMul", sides, [f"{out}/sum"]))
        nodes.append(helper.make_node("Cast", [f"{out}/sum"], [f"{out}/float"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [left_step, right_step], [f"{out}/step"]))
        scaled = f"{out}/scaled" if bias else out
        nodes.append(helper.make_node("Mul", [f"{out}/float", f"{out}/step"], [scaled]))
        if bias:
            nodes.append(helper.make_node("Add", [scaled, bias], [out]))
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


@BY_CHOICE
def test_logits_equal_those_of_sums_in_32_bits(choice):
    proto, feed = fused(choice)
    (found,), (expected,) = compute(proto, feed), compute(in_32_bits(proto), feed)
    assert found.std() > 0.5
    np.testing.assert_allclose(found, expected, atol=1e-4)


@BY_CHOICE
def test_logits_equal_those_of_the_precise_mode(choice):
    """The same float arithmetic around equal sums: not one bit may differ."""
    proto, feed = fused(choice)
    np.testing.assert_array_equal(compute(proto, feed)[0], compute(proto, feed, **PRECISE)[0])


@BY_CHOICE
def test_every_layer_gives_the_exact_sum_of_its_codes(choice):
    """Layer by layer from the codes that the engine itself made, so that no rounding before it counts."""
    proto, feed = fused(choice)
    products = [node for node in proto.graph.node if node.op_type == "MatMulIntegerToFloat"]
    held = arrays(proto)
    wanted = {name for node in products for name in (*node.input, *node.output) if name and name not in held}
    for value in proto.graph.output:
        wanted.discard(value.name)
    names = [*(value.name for value in proto.graph.output), *sorted(wanted)]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(wanted))
    seen = held | dict(zip(names, compute(proto, feed), strict=True))
    assert len(products) >= 14
    for node in products:
        left, right, left_step, right_step, zero, *rest = (seen.get(name) for name in node.input)
        other_zero, bias = [*rest, None, None][:2]
        codes = left.astype(np.int64) - zero
        weight = right.astype(np.int64) - (0 if other_zero is None else other_zero)
        sums = codes @ weight
        expected = sums * (left_step.astype(np.float64) * right_step) + (0 if bias is None else bias)
        np.testing.assert_allclose(seen[node.output[0]], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def multiply(codes: np.ndarray, integers: np.ndarray, engine: str, **config: str) -> np.ndarray:
    """The product by a matmul whose codes are its inputs, in the graph that the engine gets."""
    inputs = f"float[n, {len(integers)}] x"
    proto = graph(["y = MatMul (x, w)"], {"w": np.zeros(integers.shape, np.float32)}, inputs)
    quant_map = QuantMap({"w": QuantLayer(Range(0, 255), integers, np.ones(1, np.float32))})
    fused = engine == "onnxruntime"
    written = write_onnxruntime(proto, quant_map) if fused else write_qdq(proto, quant_map, signed=False)
    return COMPUTE[engine](written, {"x": codes.astype(np.float32)}, **config)[0]


def worst(wide: int, out: int, cpu_classes: str) -> np.ndarray:
    """Weights of equal sign, so that every pair's sum is as large as it may be."""
    weight = np.random.default_rng(3).uniform(0.9, 1, (wide, out)) * np.where(np.arange(out) % 2, 1, -1)
    return quantize_weight(weight.astype(np.float32), cpu_classes=cpu_classes).integers


@pytest.mark.parametrize("engine", COMPUTE)
@pytest.mark.parametrize("rows", [1, 17])
@pytest.mark.parametrize("wide", [64, 65, 768])
def test_default_weights_at_their_limit_are_summed_exactly(engine, rows, wide):
    integers = worst(wide, 32, "all")
    assert unsafe_pairs(integers) == 0
    assert np.abs(integers[0:64:2].astype(int) + integers[1:64:2]).max() == 128
    codes = np.random.default_rng(4).integers(250, 256, (rows, wide)).astype(np.uint8)
    np.testing.assert_array_equal(multiply(codes, integers, engine), exact(codes, integers))


@pytest.mark.parametrize("engine", COMPUTE)
def test_weights_for_newer_cpus_go_wrong_exactly_where_sums_saturate(engine):
    integers, codes = worst(64, 32, "vnni"), np.full((4, 64), 255, np.uint8)
    assert unsafe_pairs(integers) > 0
    right = np.array_equal(multiply(codes, integers, engine), exact(codes, integers))
    assert right == (not saturates(engine))


def test_precise_mode_is_exact_for_any_weights():
    """So that equality with it, above, means something."""
    integers, codes = worst(64, 32, "vnni"), np.full((4, 64), 255, np.uint8)
    np.testing.assert_array_equal(multiply(codes, integers, "onnxruntime", **PRECISE), exact(codes, integers))


def test_products_of_activations_are_exact_at_their_extremes():
    """Nothing makes these safe for sums that saturate: u8 times u8 takes another instruction."""
    proto = graph(["s = MatMul (q, k)", "p = Softmax (s)", "y = MatMul (p, v)"], {},
                  "float[n, 64] q, float[64, n] k, float[n, 64] v", "float[n, n] s, float[n, o] y")  # fmt: skip
    widest = Range(0, 255)
    written = write_onnxruntime(proto, QuantMap(products={"s": QuantProduct(widest, widest)}))
    codes = np.full((8, 64), 255, np.float32)
    scores, _ = compute(written, {"q": codes, "k": codes.T.copy(), "v": codes})
    np.testing.assert_array_equal(scores, np.full((8, 8), 64 * 255 * 255, np.float32))
