"""What can be quantized in a graph is found, all of it and nothing else, and is what it is said to be."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from other_exporters import batch, linears, torchscript, values

from models import EVERY_FAMILY, build
from tersely.graphs.layers import SMALLEST, find_layers, find_products, find_tables
from tersely.graphs.plain import unfold
from tersely.models.torch_folder import load_module

WEIGHTS = (
    "float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3, 2] v = {1, 2, 3, 4, 5, 6}, float[3] b = {1, 2, 3}, float s = {2}"
)


def graph(*lines: str, inputs: str = "float[n, 2] x, float[n, 3] z", gives: str = "float[n, 3] y"):
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
    return parser.parse_model(f"{head} g ({inputs}) => ({gives}) <{WEIGHTS}> {{ {' '.join(lines)} }}")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["y = MatMul (x, w)"], ("y", None)),
        (["m = MatMul (x, w)", "y = Add (m, b)"], ("y", "b")),
        (["m = MatMul (x, w)", "y = Add (b, m)"], ("y", "b")),
        (["m = MatMul (x, w)", "y = Add (m, s)"], ("m", None)),
        (["m = MatMul (x, w)", "y = Add (m, z)"], ("m", None)),
        (["m = MatMul (x, w)", "y = Add (m, m)"], ("m", None)),
        (["m = MatMul (x, w)", "y = Mul (m, b)"], ("m", None)),
        (["m = MatMul (x, w)", "n = Add (m, b)", "y = Mul (n, m)"], ("m", None)),
        (["y = Gemm (x, w, b)"], ("y", "b")),
        (["y = Gemm (x, w)"], ("y", None)),
        (["y = Gemm <transB = 1> (x, v, b)"], ("y", "b")),
        (["y = Gemm <alpha = 2.0> (x, w, b)"], None),
        (["y = Gemm <beta = 2.0> (x, w, b)"], None),
        (["y = Gemm (x, w, s)"], None),
        (["y = Gemm (x, w, z)"], None),
        (["t = Transpose (x)", "y = Gemm <transA = 1> (t, w, b)"], None),
        (["y = MatMul (v, z)"], None),
        (["t = Identity (w)", "y = MatMul (x, t)"], None),
        (["y = com.microsoft.MatMul (x, w)"], None),
    ],
    ids=lambda value: "; ".join(value) if isinstance(value, list) else "",
)
def test_layer_is_a_matmul_with_a_weight_on_its_right_and_its_bias(lines, found):
    layers = find_layers(graph(*lines))
    assert [(layer.output, layer.bias) for layer in layers] == ([found] if found else [])
    assert all(layer.shape == (2, 3) and layer.input == "x" and not layer.constant_input for layer in layers)


def test_matmul_that_is_itself_an_output_keeps_its_bias_apart():
    proto = graph("m = MatMul (x, w)", "y = Add (m, b)", gives="float[n, 3] m, float[n, 3] y")
    assert [(layer.output, layer.bias) for layer in find_layers(proto)] == [("m", None)]


def test_weight_that_two_matmuls_read_gives_two_layers():
    layers = find_layers(graph("h = MatMul (x, w)", "i = MatMul (h, v)", "y = MatMul (i, w)"))
    assert [(layer.name, layer.matmul) for layer in layers] == [("w", "h"), ("v", "i"), ("w", "y")]


def test_input_that_never_changes_is_marked():
    proto = graph("t = Mul (v, s)", "c = MatMul (t, w)", "k = MatMul (c, v)", "y = MatMul (x, w)")
    assert [(layer.matmul, layer.constant_input) for layer in find_layers(proto)] == [
        ("c", True), ("k", True), ("y", False),
    ]  # fmt: skip


def test_table_has_enough_rows_and_is_gathered_by_row():
    def proto(rows: int, axis: int):
        made = parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (int64[n, l] ids) => (float[n, l, w] y) '
            f"{{ y = Gather <axis = {axis}> (table, ids) }}"
        )
        made.graph.initializer.append(numpy_helper.from_array(np.zeros((rows, 4), np.float32), "table"))
        return made

    (table,) = find_tables(proto(SMALLEST, 0))
    assert (table.name, table.indices, table.output, table.shape) == ("table", "ids", "y", (SMALLEST, 4))
    assert find_tables(proto(SMALLEST - 1, 0)) == []
    assert find_tables(proto(SMALLEST, 1)) == []
    assert len(find_tables(proto(3, 0), smallest=3)) == 1


def test_softmax_over_logits_makes_no_product():
    proto = graph("m = MatMul (x, w)", "p = Softmax (m)", "t = Transpose (z)", "q = MatMul (t, x)", "y = MatMul (p, q)")
    assert [(product.name, product.kind) for product in find_products(proto)] == [("y", "context")]
    assert find_products(graph("m = MatMul (x, w)", "y = Softmax (m)")) == []


def check_everything(proto: onnx.ModelProto, module) -> None:
    """Compare what was found with the torch model's own parts, and with the numbers that the engine computes."""
    layers, products, tables = find_layers(proto), find_products(proto), find_tables(proto)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    expected = linears(module)
    assert {layer.name: layer.bias for layer in layers} == {
        f"{name}.weight": f"{name}.bias" if part.bias is not None else None for name, part in expected.items()
    }
    for layer in layers:
        part = expected[layer.name.removesuffix(".weight")]
        assert layer.shape == (part.in_features, part.out_features)
        assert np.array_equal(arrays[layer.name], part.weight.detach().numpy().T)

    wanted = {name for layer in layers for name in (layer.input, layer.output)}
    wanted |= {name for product in products for name in (product.name, product.left, product.right)}
    wanted |= {name for table in tables for name in (table.indices, table.output)}
    seen = values(proto, sorted(wanted - set(arrays)), batch(module.config.pad_token_id)) | arrays
    for layer in layers:
        computed = seen[layer.input] @ arrays[layer.name] + (arrays[layer.bias] if layer.bias else 0)
        assert np.allclose(seen[layer.output], computed, atol=1e-4), layer
    for product in products:
        assert np.allclose(seen[product.name], seen[product.left] @ seen[product.right], atol=1e-4), product
        shares = (seen[product.left] >= 0).all() and np.allclose(seen[product.left].sum(-1), 1, atol=1e-5)
        assert shares == (product.kind == "context"), product
    for table in tables:
        assert np.array_equal(seen[table.output], arrays[table.name][seen[table.indices]]), table
    big = {
        f"{name}.weight" for name, part in module.named_modules()
        if type(part).__name__ == "Embedding" and part.num_embeddings >= SMALLEST
    }  # fmt: skip
    assert {table.name for table in tables} == big

    depth = module.config.num_hidden_layers
    scores = depth * (3 if module.config.model_type == "deberta-v2" else 1)
    assert Counter(product.kind for product in products) == {"scores": scores, "context": depth}


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_everything_is_found_in_an_older_graph(family, tmp_path):
    module = load_module(build(tmp_path / family, family))
    proto = unfold(onnx.load(torchscript(module, tmp_path / "model.onnx", opset=14)))
    check_everything(proto, module)
    times = Counter(layer.name for layer in find_layers(proto))
    assert set(times.values()) == ({1, 2} if family == "albert" else {1})


@pytest.mark.slow
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_everything_is_found_in_our_own_graph(exported, family):
    _, folder, path = exported(family)
    module = load_module(folder)
    proto = onnx.load(path)
    transposed = {layer.name for layer in find_layers(proto) if layer.transposed}
    proto = unfold(proto)
    check_everything(proto, module)
    assert transposed  # the Gemm nodes of the head …
    assert not any(layer.transposed for layer in find_layers(proto))  # … which unfold has put straight
    constant = {layer.matmul for layer in find_layers(proto) if layer.constant_input}
    assert len(constant) == (4 if family == "deberta_v2" else 0)  # two projections of relative positions per layer
