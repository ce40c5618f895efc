"""ONNX Runtime's own graph computes what the map says, and quantizes each value once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from int8 import arrays, bert, compute, count, graph, make_map, range_of, run
from layer_cases import CASES, fake, make_case

from tersely.errors import UserError
from tersely.graphs.layers import find_layers, find_products
from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.quant_map import QuantLayer, QuantMap, QuantProduct, Range
from tersely.quantize.weights import quantize_weight

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_layer_gives_what_float64_arithmetic_gives(case):
    made = make_case(case)
    written = write_onnxruntime(made.proto, made.quant_map)
    onnx.checker.check_model(written)
    (found,) = compute(written, {"x": made.x})
    np.testing.assert_allclose(found, made.unsigned, atol=2e-5)
    # The bias lies inside the one node that there is.
    extra = ["Mul"] if case.smooth else []
    assert [node.op_type for node in written.graph.node] == [*extra, "QuantizeLinear", "MatMulIntegerToFloat"]


def test_smoothing_divides_the_input_and_multiplies_the_weight():
    """In the limit of fine steps nothing changes: a float that lies on the grid comes out as it went in."""
    x = np.array([[1, -2, 4, 0.5], [0, 3, -2, 2]], np.float32)
    weight = np.array([[2, 1], [-3, 0], [1, 5], [4, -1]], np.float32)
    divisor = np.array([0.5, 1, 2, 0.25], np.float32)
    proto = graph(["y = MatMul (x, w)"], {"w": weight}, "float[n, 4] x")
    # (x / divisor) is whole, and so is weight · divisor · 4.
    layer = QuantLayer(Range(-100, 155), np.int8(weight * divisor[:, None] * 4), np.array([0.25], np.float32), divisor)
    (found,) = compute(write_onnxruntime(proto, QuantMap({"w": layer})), {"x": x})
    np.testing.assert_array_equal(found, x @ weight)


def test_weight_that_two_matmuls_read_lies_there_once():
    weight = RANDOM.normal(size=(16, 16)).astype(np.float32)
    proto = graph(["h = MatMul (x, w)", "t = Tanh (h)", "y = MatMul (t, w)"], {"w": weight}, "float[n, 16] x")
    x = RANDOM.normal(size=(6, 16)).astype(np.float32)
    quant_map = make_map(proto, {"x": x})
    written = write_onnxruntime(proto, quant_map)
    onnx.checker.check_model(written)
    layer = quant_map.layers["w"]
    assert [array.shape for array in arrays(written).values() if array.dtype == np.int8] == [(16, 16)]
    real = layer.integers * layer.scales
    hidden = fake(x, layer.range, signed=False) @ real
    (found,) = compute(written, {"x": x})
    np.testing.assert_allclose(found, fake(np.tanh(hidden), layer.range, signed=False) @ real, atol=1e-4)


def test_value_smoothed_in_two_ways_is_quantized_twice_under_free_names():
    """`x.smoothed` is taken by the graph itself, as torch's own names (`input.1`) often are."""
    weights = {name: RANDOM.normal(size=(8, 4)).astype(np.float32) for name in ("u", "v", "w")}
    lines = ["a = MatMul (x, u)", "b = MatMul (x, v)", "c = MatMul (x, w)", "y = Sum (a, b, c)"]
    proto = graph(lines, weights, "float[n, 8] x")
    proto.graph.node[0].output[0] = proto.graph.node[3].input[0] = "x.smoothed"
    x = RANDOM.normal(size=(5, 8)).astype(np.float32)
    layers, expected = {}, np.zeros((5, 4))
    for name, divisor in (("u", 1.0), ("v", 2.0), ("w", 2.0)):
        divide = np.full(8, divisor, np.float32)
        quantized = quantize_weight(weights[name] * divide[:, None])
        ranged = range_of(x / divisor)
        layers[name] = QuantLayer(ranged, quantized.integers, quantized.scales, divide)
        expected += fake(x / divisor, ranged, signed=False) @ (quantized.integers * quantized.scales)
    written = write_onnxruntime(proto, QuantMap(layers))
    onnx.checker.check_model(written)
    assert count(written, "QuantizeLinear") == count(written, "Mul") == 2
    (found,) = compute(written, {"x": x})
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_quantizer_comes_before_the_first_reader_whatever_that_is():
    """A product reads x before the layer does; both have one quantizer."""
    weight = RANDOM.normal(size=(8, 8)).astype(np.float32)
    lines = ["t = Transpose (x)", "s = MatMul (x, t)", "p = Softmax (s)", "c = MatMul (p, x)", "h = MatMul (x, w)"]
    proto = graph([*lines, "y = Add (c, h)"], {"w": weight}, "float[n, 8] x")
    x = RANDOM.normal(size=(6, 8)).astype(np.float32)
    written = write_onnxruntime(proto, make_map(proto, {"x": x}, attention=True))
    onnx.checker.check_model(written)
    assert count(written, "QuantizeLinear") == 3  # x, its transpose, the softmax
    (found,), (float_,) = compute(written, {"x": x}), compute(proto, {"x": x})
    np.testing.assert_allclose(found, float_, atol=0.15)


def test_second_output_of_a_node_is_quantized_after_it():
    weights = {name: RANDOM.normal(size=(8, 4)).astype(np.float32) for name in ("v", "w")}
    lines = ["a, b = Split <axis = 1> (x)", "c = MatMul (a, v)", "d = MatMul (b, w)", "y = Add (c, d)"]
    proto = graph(lines, weights, "float[n, 16] x")
    x = RANDOM.normal(size=(6, 16)).astype(np.float32)
    written = write_onnxruntime(proto, make_map(proto, {"x": x}))
    onnx.checker.check_model(written)
    np.testing.assert_allclose(compute(written, {"x": x})[0], compute(proto, {"x": x})[0], atol=0.2)


@pytest.mark.parametrize("rows", [1, 40])
def test_dynamic_layer_equals_dynamic_quantization_in_numpy(rows):
    weight, bias = RANDOM.normal(size=(32, 24)).astype(np.float32), RANDOM.normal(size=24).astype(np.float32)
    proto = graph(["m = MatMul (x, w)", "y = Add (m, b)"], {"w": weight, "b": bias}, "float[n, 32] x")
    x = RANDOM.normal(0.5, 1, (rows, 32))
    quant_map = make_map(proto, {"x": x}, dynamic=True)
    # The standard's DynamicQuantizeLinear: the batch's own range with 0 inside, 255 steps.
    low, high = min(x.min(), 0), max(x.max(), 0)
    step = (high - low) / 255
    inside = np.abs((x / step) % 1 - 0.5) > 0.02
    x = np.where(inside | (x == low) | (x == high), x, x + 0.05 * step).astype(np.float32)
    zero = np.rint(-low / step)
    codes = np.clip(np.rint(x / step) + zero, 0, 255)
    layer = quant_map.layers["w"]
    expected = (codes - zero) * step @ (layer.integers.astype(np.float64) * layer.scales) + bias
    (found,) = compute(write_onnxruntime(proto, quant_map), {"x": x})
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_map_of_another_graph_is_refused():
    made = make_case(CASES[0])
    other = QuantMap({"encoder.weight": made.quant_map.layers["w"]})
    with pytest.raises(UserError, match=r"'encoder\.weight', which the graph does not have"):
        write_onnxruntime(made.proto, other)


def test_query_key_and_value_share_one_quantizer():
    proto, rows = bert()
    before = proto.SerializeToString(deterministic=True)
    for dynamic, quantizer in ((False, "QuantizeLinear"), (True, "DynamicQuantizeLinear")):
        written = write_onnxruntime(proto, make_map(proto, rows, dynamic=dynamic))
        onnx.checker.check_model(written)
        # Two layers of four inputs (q, k and v; after attention; two of the feed-forward), pooler and classifier.
        assert count(written, quantizer) == 2 * 4 + 2
        assert count(written, "MatMulIntegerToFloat") == 2 * 6 + 2
        assert count(written, "Gemm") == 0
    assert proto.SerializeToString(deterministic=True) == before


def test_same_map_gives_the_same_bytes():
    proto, rows = bert()
    maps = [make_map(proto, rows, attention=True, tables=True, smooth=True) for _ in range(2)]
    first, second = (write_onnxruntime(proto, quant_map).SerializeToString(deterministic=True) for quant_map in maps)
    assert first == second


def test_weights_lie_in_the_file_as_int8():
    proto, rows = bert()
    written = write_onnxruntime(proto, make_map(proto, rows, tables=True))
    weights = {layer.name: layer.shape for layer in find_layers(proto)}
    held = arrays(written)
    assert not weights.keys() & held.keys()
    numbers = sum(wide * out for wide, out in weights.values())
    floats = {name: array for name, array in arrays(proto).items() if name not in weights}
    saved = len(proto.SerializeToString()) - len(written.SerializeToString())
    tables = sum(floats[name].size for name in make_map(proto, rows, tables=True).tables)
    # Three of four bytes of each number are gone, but for scales and names.
    assert 0.7 * 3 * (numbers + tables) < saved < 3 * (numbers + tables)


@pytest.mark.parametrize("choice", [{}, {"smooth": True}, {"attention": True}, {"tables": True}, {"dynamic": True}])
def test_encoder_stays_close_to_float(tmp_path, choice):
    proto, rows = bert()
    exact = run(proto, rows, tmp_path)
    found = run(write_onnxruntime(proto, make_map(proto, rows, **choice)), rows, tmp_path)
    change = np.abs(found - exact).mean()
    assert 0 < change < 0.15 * exact.std()


def test_attention_products_are_integer_where_the_map_holds_them():
    proto, rows = bert()
    products = find_products(proto)
    quant_map = make_map(proto, rows, attention=True)
    assert count(write_onnxruntime(proto, quant_map), "MatMulIntegerToFloat") == 14 + 4
    only = QuantMap(products={name: ranges for name, ranges in quant_map.products.items() if name == products[0].name})
    written = write_onnxruntime(proto, only)
    assert (count(written, "MatMulIntegerToFloat"), count(written, "QuantizeLinear")) == (1, 2)


def test_shares_of_attention_have_zero_point_zero():
    lines = ["s = MatMul (q, k)", "p = Softmax (s)", "y = MatMul (p, v)"]
    proto = graph(lines, {}, "float[n, 8] q, float[8, n] k, float[n, 8] v")
    product = QuantProduct(Range(0, 1), Range(-1, 3))
    written = write_onnxruntime(proto, QuantMap(products={"y": product}))
    held = arrays(written)
    (shares,) = (node for node in written.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "p")
    assert held[shares.input[2]].dtype == np.uint8
    assert held[shares.input[2]] == 0
    feed = {"q": RANDOM.normal(size=(9, 8)), "k": RANDOM.normal(size=(8, 9)), "v": np.arange(72).reshape(9, 8) % 5 - 1}
    feed = {name: array.astype(np.float32) for name, array in feed.items()}
    scores = feed["q"] @ feed["k"]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    (found,) = compute(written, feed)
    expected = fake(shares, product.left, signed=False) @ fake(feed["v"], product.right, signed=False)
    np.testing.assert_allclose(found, expected, atol=0.02)
