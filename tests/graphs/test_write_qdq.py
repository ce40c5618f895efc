"""Standard Q/DQ graphs: what the map says on both engines, the numbers of the fused graph, the form TensorRT takes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from int8 import COMPUTE, arrays, bert, compute, count, graph, make_map, run, sentences
from layer_cases import CASES, fake, make_case
from onnx import numpy_helper

from tersely.engines.cpu import cpu
from tersely.engines.saturation import saturates
from tersely.errors import UserError
from tersely.graphs.layers import find_layers, find_products
from tersely.graphs.plain import unfold
from tersely.graphs.wiring import givers, readers
from tersely.graphs.write_emulated import write_emulated
from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.graphs.write_qdq import write_qdq
from tersely.quant_map import QuantMap, QuantProduct, Range

RANDOM = np.random.default_rng(6)
ENGINES = pytest.mark.parametrize("engine", COMPUTE)
SIGNED = pytest.mark.parametrize("signed", [False, True], ids=["u8", "s8"])


@ENGINES
@SIGNED
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_layer_gives_what_float64_arithmetic_gives(case, signed, engine):
    made = make_case(case)
    written = write_qdq(made.proto, made.quant_map, signed=signed)
    onnx.checker.check_model(written, full_check=True)
    (found,) = COMPUTE[engine](written, {"x": made.x})
    np.testing.assert_allclose(found, made.signed if signed else made.unsigned, atol=2e-5)


@ENGINES
@pytest.mark.parametrize("size", [8, 64])
def test_products_of_unsigned_codes_are_right_at_their_extremes(engine, size):
    """Also where sums of pairs saturate: no weight here is made safe for it. (s8 ones are not on OpenVINO there.)"""
    lines = ["s = MatMul (q, k)", "p = Softmax (s)", "y = MatMul (p, v)"]
    proto = graph(
        lines, {}, f"float[n, {size}] q, float[{size}, n] k, float[n, {size}] v", "float[n, n] s, float[n, o] y"
    )
    q, k = np.sign(RANDOM.normal(size=(16, size))), np.sign(RANDOM.normal(size=(size, 16)))
    q[0], k[:, 0], k[:, 1] = 1, 1, -1
    v = np.sign(RANDOM.normal(size=(16, size)))
    both = Range(-1, 1)
    written = write_qdq(
        proto, QuantMap(products={"s": QuantProduct(both, both), "y": QuantProduct(Range(0, 1), both)}), signed=False
    )
    feed = {name: array.astype(np.float32) for name, array in (("q", q), ("k", k), ("v", v))}
    scores, context = COMPUTE[engine](written, feed)
    expected = fake(q, both, signed=False) @ fake(k, both, signed=False)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    shares = np.exp(expected - expected.max(axis=1, keepdims=True))
    shares = fake(shares / shares.sum(axis=1, keepdims=True), Range(0, 1), signed=False)
    np.testing.assert_allclose(context, shares @ fake(v, both, signed=False), atol=0.02)


def test_layer_without_a_range_keeps_its_float_input():
    made = make_case(CASES[1])
    proto, x = made.proto, made.x
    quant_map = make_map(proto, {"x": x}, dynamic=True)
    written = write_qdq(proto, quant_map, signed=False)
    assert [node.op_type for node in written.graph.node] == ["DequantizeLinear", "MatMul", "Add"]
    layer = quant_map.layers["w"]
    (found,) = COMPUTE["openvino"](written, {"x": x})
    weight = layer.integers * layer.scales
    # With exact sums OpenVINO quantizes such inputs itself: no code of theirs is off by more than half a step of 1/127.
    half_step = np.abs(x).max() / 127 / 2
    allowed = 1e-4 if cpu().cpu_class == "avx2" else half_step * np.abs(weight).sum(axis=0) + 1e-4
    assert (np.abs(found - (x @ weight + arrays(proto)["b"])) <= allowed).all()
    # ONNX Runtime makes a product of its own of it, with inputs in blocks of 32 codes.
    (found,) = compute(written, {"x": x})
    np.testing.assert_allclose(found, x @ (layer.integers * layer.scales) + arrays(proto)["b"], atol=0.2)


def test_map_of_another_graph_is_refused():
    made = make_case(CASES[0])
    with pytest.raises(UserError, match="'m', which the graph does not have"):
        write_qdq(made.proto, QuantMap(products={"m": QuantProduct(Range(0, 1), Range(0, 1))}), signed=True)


CHOICES = [{}, {"smooth": True}, {"attention": True}, {"tables": True}, {"kind": "abs_max"}]


def check_agreement(proto, rows, tmp_path, choice):
    """Forms differ by float rounding alone, which now and then moves a code by one.

    Where that is one of [CLS] all rows move, by up to half of what INT8 changes; so layers are compared too.
    """
    quant_map = make_map(proto, rows, **choice)
    exact = run(proto, rows, tmp_path)
    fused = run(write_onnxruntime(proto, quant_map), rows, tmp_path)
    standard, signed = (write_qdq(proto, quant_map, signed=signed) for signed in (False, True))
    change = np.abs(fused - exact).mean()
    assert 0 < change < 0.2 * exact.std()
    np.testing.assert_allclose(run(standard, rows, tmp_path), fused, atol=change / 10)
    assert np.abs(run(standard, rows, tmp_path, "openvino") - fused).mean() < change
    # Twice the step where inputs are one-sided.
    coarse = run(signed, rows, tmp_path)
    assert 0 < np.abs(coarse - exact).mean() < 3 * change
    assert np.abs(coarse - fused).mean() < 3 * change
    feed = {value.name: rows[value.name] for value in proto.graph.input}
    check_layers(proto, standard, quant_map, feed, "onnxruntime", signed=False)
    check_layers(proto, standard, quant_map, feed, "openvino", signed=False)
    check_layers(proto, signed, quant_map, feed, "onnxruntime", signed=True)


def check_layers(proto, written, quant_map, feed, engine, *, signed):
    """From the engine's own input each layer gives float64's output, but for codes that lie between two."""
    layers, held = find_layers(proto), arrays(proto)
    shown = onnx.ModelProto()
    shown.CopyFrom(written)
    inner = sorted({name for layer in layers for name in (layer.input, layer.output)} - set(held))
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in inner)
    seen = held | dict(zip(inner, COMPUTE[engine](shown, feed), strict=True))
    same = []
    for layer in layers:
        made = quant_map.layers[layer.name]
        x = seen[layer.input] if made.smooth is None else seen[layer.input] / made.smooth
        real = made.integers.astype(np.float64) * made.scales
        expected = fake(x, made.range, signed=signed) @ real + (held[layer.bias] if layer.bias else 0)
        error = np.abs(seen[layer.output] - expected)
        step = made.range.symmetric() if signed else made.range.unsigned()[0]
        assert error.max() < 2 * step * np.abs(real).max()
        same.append(np.mean(error < 1e-5 * np.abs(expected).max()))
    assert np.mean(same) > 0.98


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: "-".join(choice) or "layers")
def test_engines_agree_on_real_sentences(tmp_path, choice):
    check_agreement(*bert(), tmp_path, choice)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["albert", "deberta_v2", "modernbert", "distilbert"])
def test_engines_agree_on_real_sentences_for_other_families(exported, family, tmp_path):
    _, folder, path = exported(family)
    check_agreement(unfold(onnx.load(path)), sentences(folder), tmp_path, {"smooth": True, "tables": True})


def check_form(proto, written):
    """What TensorRT's explicit quantization asks for, and the ONNX standard."""
    held, gives, read = arrays(written), givers(written.graph), readers(written.graph)
    assert {node.domain for node in written.graph.node} == {""}
    assert [opset.domain for opset in written.opset_import] == [""]
    for node in written.graph.node:
        if node.op_type in {"QuantizeLinear", "DequantizeLinear"}:
            assert held[node.input[2]].dtype == np.int8
            assert not held[node.input[2]].any()
    for layer in find_layers(proto):
        matmul = gives.get(layer.matmul) or gives[f"{layer.matmul}.unbiased"]
        weight = gives[matmul.input[1]]
        assert weight.op_type == "DequantizeLinear"
        assert held[weight.input[0]].dtype == np.int8
        assert held[weight.input[0]].shape == layer.shape
        assert held[weight.input[1]].shape == layer.shape[1:]
        assert [attribute.i for attribute in weight.attribute if attribute.name == "axis"] == [1]
        value = gives[matmul.input[0]]
        assert value.op_type == "DequantizeLinear"
        assert gives[value.input[0]].op_type == "QuantizeLinear"
        assert value.input[1:] == gives[value.input[0]].input[1:]
        if matmul.op_type == "MatMul" and layer.bias is not None:
            (reader,) = read[matmul.output[0]]
            assert reader.op_type == "Add"
            assert layer.bias in reader.input


def test_signed_graph_has_the_form_that_tensorrt_takes():
    proto, rows = bert()
    before = proto.SerializeToString(deterministic=True)
    quant_map = make_map(proto, rows, smooth=True)
    written = write_qdq(proto, quant_map, signed=True)
    onnx.checker.check_model(written, full_check=True)
    check_form(proto, written)
    # Two layers of four inputs (q, k and v share one), pooler and classifier; a weight has no quantizer.
    assert count(written, "QuantizeLinear") == count(written, "Mul") - count(proto, "Mul") == 2 * 4 + 2
    assert count(written, "DequantizeLinear") == 2 * 4 + 2 + 2 * 6 + 2
    attention = write_qdq(proto, make_map(proto, rows, attention=True), signed=True)
    check_form(proto, attention)
    assert count(attention, "QuantizeLinear") == 10 + 2 * 4
    assert proto.SerializeToString(deterministic=True) == before


def test_operator_sets_that_nothing_uses_are_left_out():
    made = make_case(CASES[0])
    made.proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    written = write_qdq(made.proto, made.quant_map, signed=True)
    assert [opset.domain for opset in written.opset_import] == [""]


def test_initializer_that_only_a_branch_reads_stays():
    made = make_case(CASES[0])
    branch = onnx.parser.parse_graph("then () => (float z) { z = Identity (shift) }")
    proto = made.proto
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(2), "shift"))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    proto.graph.node[0].output[0] = "m"
    proto.graph.node.append(onnx.helper.make_node("If", ["yes"], ["s"], then_branch=branch, else_branch=branch))
    proto.graph.node.append(onnx.helper.make_node("Add", ["m", "s"], ["y"]))
    written = write_qdq(proto, made.quant_map, signed=False)
    onnx.checker.check_model(written)
    (found,) = compute(written, {"x": made.x})
    np.testing.assert_allclose(found, made.unsigned + 2, atol=2e-5)


@SIGNED
def test_same_map_gives_the_same_bytes(signed):
    proto, rows = bert()
    maps = [make_map(proto, rows, attention=True, tables=True, smooth=True) for _ in range(2)]
    first, second = (
        write_qdq(proto, quant_map, signed=signed).SerializeToString(deterministic=True) for quant_map in maps
    )
    assert first == second


def test_signed_sides_are_q_k_and_v_alone():
    """Probabilities and the inputs of layers stay u8; the standard form is what it was."""
    proto, rows = bert()
    quant_map = make_map(proto, rows, attention=True)
    written = write_qdq(proto, quant_map, signed=False, signed_sides=True)
    onnx.checker.check_model(written, full_check=True)
    gives = {node.output[0]: node for node in written.graph.node}
    held = arrays(written)
    for product in find_products(proto):
        sides = [held[gives[side].input[2]] for side in gives[product.name].input]
        assert [side.dtype for side in sides] == [np.uint8 if product.kind == "context" else np.int8, np.int8]
        assert not any(sides)
    for layer in find_layers(proto):
        if layer.name in quant_map.layers:
            matmul = gives.get(layer.matmul) or gives[f"{layer.matmul}.unbiased"]
            assert held[gives[matmul.input[0]].input[2]].dtype == np.uint8


def test_signed_sides_give_the_same_on_the_engine_that_they_are_for(tmp_path):
    """OpenVINO against whole numbers in floats, where its sums have 32 bits."""
    if saturates("openvino"):
        pytest.skip("OpenVINO sums s8 products in 16 bits here")
    proto, rows = bert()
    written = write_qdq(proto, make_map(proto, rows, attention=True), signed=False, signed_sides=True)
    (tmp_path / "int8.onnx").write_bytes(written.SerializeToString())
    exact = onnx.load(write_emulated(tmp_path / "int8.onnx", tmp_path / "emulated.onnx"))
    expected, found = run(exact, rows, tmp_path), run(written, rows, tmp_path, "openvino")
    float_ = run(proto, rows, tmp_path)
    # Single codes differ by a step where engines round apart; quantization itself moves far more.
    assert np.abs(found - expected).mean() < 0.3 * np.abs(expected - float_).mean()
