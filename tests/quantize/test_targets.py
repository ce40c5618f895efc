"""What is to be quantized, why the rest is not, and which layers must have one range."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser
from reference import changed

from tersely.errors import UserError
from tersely.graphs.layers import find_layers, find_products
from tersely.quant_map import REASONS
from tersely.quantize.ptq import dynamic
from tersely.quantize.skip import fits, skipped
from tersely.quantize.targets import FEWEST_OUTPUTS, find_targets
from tersely.quantize.weights import dequantize, quantize_tables, quantize_weight

QUERY = "bert.encoder.layer.0.attention.self.query.weight"
WORDS = "bert.embeddings.word_embeddings.weight"


def graph(*lines: str, constants: int = 0) -> Any:
    """Nodes over x [n, 64], weights a to e [64, 64], a head [64, 3], and constant tables k0, k1, …"""
    made = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 64] x) => (float[n, 64] y) '
        f"<float one = {{1}}> {{ {' '.join(lines)} }}"
    )
    shapes = {**dict.fromkeys("abcde", (64, 64)), "head": (64, 3)}
    shapes |= {f"k{number}": (5, 64) for number in range(constants)}
    for name, shape in shapes.items():
        array = np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def groups(*lines: str, constants: int = 0) -> list[tuple[Any, ...]]:
    found = find_targets(graph(*lines, constants=constants)).groups
    return [(group.values, group.constants, group.reads) for group in found]


def test_layers_of_one_input_are_one_group() -> None:
    assert groups("q = MatMul (x, a)", "k = MatMul (x, b)", "h = Add (q, k)", "y = MatMul (h, c)") == [
        (("x",), (), {"a": ("x",), "b": ("x",)}),
        (("h",), (), {"c": ("h",)}),
    ]


def test_weight_used_in_several_places_joins_all_that_they_read() -> None:
    """ALBERT: one weight, two inputs, and a second weight that reads one of these."""
    lines = ["h = MatMul (x, a)", "i = MatMul (h, b)", "y = MatMul (i, a)", "z = MatMul (i, c)", "u = MatMul (z, b)"]
    assert groups(*lines) == [
        (("x", "i"), (), {"a": ("x", "i"), "c": ("i",)}),
        (("h", "z"), (), {"b": ("h", "z")}),
    ]


def test_chain_of_shared_weights_is_one_group() -> None:
    lines = ["h = MatMul (x, a)", "i = MatMul (h, b)", "j = MatMul (i, a)", "y = MatMul (j, b)", "z = MatMul (i, b)"]
    ((values, _, reads),) = groups(*lines)
    assert set(values) == {"x", "h", "i", "j"}
    assert reads == {"a": ("x", "i"), "b": ("h", "j", "i")}


def test_constant_that_all_layers_read_does_not_join_them() -> None:
    """DeBERTa: every layer's queries and keys are also made of the one table of relative positions."""
    lines = [
        "q = MatMul (x, a)", "v = MatMul (x, b)", "r = Mul (k0, one)", "s = MatMul (r, a)",
        "h = Add (q, v)", "i = MatMul (h, c)", "t = MatMul (r, c)", "y = Mul (i, one)",
    ]  # fmt: skip
    assert groups(*lines, constants=1) == [
        (("x",), ("r",), {"a": ("x", "r"), "b": ("x",)}),
        (("h",), ("r",), {"c": ("h", "r")}),
    ]
    targets = find_targets(graph(*lines, constants=1))
    assert targets.inputs == {"x": -2, "r": None, "h": -2}


def test_reasons_are_told_by_weight() -> None:
    lines = [
        "q = MatMul (x, a)",
        "r = MatMul (k0, b)",
        "s = MatMul (q, head)",
        "t = MatMul (q, c)",
        "y = MatMul (t, d)",
    ]
    proto = graph(*lines, constants=1)
    spoiled = changed(proto, c=lambda weight: weight.__setitem__((3, 4), np.nan))
    targets = find_targets(spoiled, skip_layers=["d"])
    assert targets.left_float == {"b": "constant", "head": "small", "c": "not_finite", "d": "skipped"}
    assert [layer.name for layer in targets.layers] == ["a"]
    assert set(targets.left_float.values()) <= set(REASONS)


def test_every_layer_of_a_model_is_a_target_or_has_a_reason(small: Any) -> None:
    proto = small().proto
    targets = find_targets(proto)
    layers = find_layers(proto)
    assert len(targets.layers) == len(layers) - 1
    assert targets.left_float == {
        "classifier.weight": "small",
        **{product.name: "not_asked" for product in find_products(proto)},
    }
    assert all(layer.shape[1] >= FEWEST_OUTPUTS for layer in targets.layers)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    for layer in targets.layers:
        np.testing.assert_array_equal(targets.weights[layer.name], held[layer.name])
        np.testing.assert_array_equal(targets.biases[layer.name], held[layer.bias])
    assert sorted(name for group in targets.groups for name in group.reads) == sorted(
        layer.name for layer in targets.layers
    )


def test_products_are_targets_where_attention_is_asked_for(small: Any) -> None:
    proto = small().proto
    targets = find_targets(proto, attention=("scores", "context"))
    assert targets.products == tuple(find_products(proto))
    assert "not_asked" not in targets.left_float.values()
    scores, context = targets.products[:2]
    assert {targets.sides[scores.left], targets.sides[context.left], targets.sides[context.right]} == {-2}
    assert targets.sides[scores.right] == -1
    assert find_targets(proto).sides == {}


def test_groups_follow_the_layers_that_are_left(small: Any) -> None:
    targets = find_targets(small().proto)
    fewer = replace(targets, layers=tuple(layer for layer in targets.layers if layer.name != QUERY))
    assert QUERY in targets.groups[0].reads
    assert len(fewer.groups[0].reads) == 2
    assert QUERY not in fewer.groups[0].reads


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (QUERY, 1),
        (QUERY.removesuffix(".weight"), 1),
        ("*.query", 2),
        ("*.query.weight", 2),
        ("*layer.[0]*", 6),
        ("*", 13),
    ],
)
def test_patterns_fit_names_with_and_without_the_ending(small: Any, pattern: str, count: int) -> None:
    left = find_targets(small().proto, skip_layers=[pattern]).left_float
    expected = count + 1 if pattern == "*" else count  # the classifier is small, but skipped by name first
    assert list(left.values()).count("skipped") == expected


@pytest.mark.parametrize("pattern", ["query", "*.Query", "*.query.bias", "bert.encoder.layer.9*", "*LayerNorm*", ""])
def test_pattern_that_names_nothing_is_refused(small: Any, pattern: str) -> None:
    with pytest.raises(UserError, match="No layer fits the pattern") as caught:
        find_targets(small().proto, skip_layers=["*.key", pattern])
    assert f"'{pattern}'" in str(caught.value)
    assert "Layers have names such as" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_pattern_may_name_a_table_alone(small: Any) -> None:
    proto = small().proto
    assert "skipped" not in find_targets(proto, skip_layers=["*word_embeddings"]).left_float.values()
    tables, left = quantize_tables(proto, ["*word_embeddings", "*.key"])
    assert list(tables) == ["bert.embeddings.position_embeddings.weight"]
    assert left == {WORDS: "skipped"}


def test_table_with_numbers_that_are_not_finite_stays_float(small: Any) -> None:
    proto = small().proto
    spoiled = changed(proto, bert__embeddings__word_embeddings__weight=lambda table: table.__setitem__((7, 7), np.inf))
    tables, left = quantize_tables(spoiled)
    assert left == {WORDS: "not_finite"}
    kept, none = quantize_tables(proto)
    assert none == {}
    assert set(kept) == {*tables, WORDS}


def test_skip_patterns_name_layers_and_none_goes_unused() -> None:
    names = ["encoder.0.query.weight", "encoder.1.query.weight", "encoder.0.Query.weight", "pooler.dense.weight"]
    assert skipped(["*.query.*"], names) == tuple(names[:2])
    assert skipped(["*.query"], names) == tuple(names[:2])
    assert skipped(["pooler.dense", "*[01].q*"], names) == (names[0], names[1], names[3])
    assert skipped([], names) == ()
    with pytest.raises(UserError, match=r"No layer fits the pattern 'poolr.dense.weight'") as caught:
        skipped(["*.query.*", "poolr.dense.weight"], names)
    assert str(caught.value.hint).startswith("Layers have names such as 'pooler.dense.weight'")
    with pytest.raises(UserError, match="The model has none"):
        skipped(["*"], [])
    assert not fits("pooler.weight.weight", "pooler")


@pytest.mark.parametrize("cpu_classes", ["all", "vnni"])
def test_dynamic_has_every_target_without_a_range(small: Any, cpu_classes: str) -> None:
    targets = find_targets(small().proto)
    found = dynamic(targets, "abs_max", cpu_classes)
    assert list(found.layers) == [layer.name for layer in targets.layers]
    assert found.left_float == targets.left_float
    assert found.cpu_classes == (("all",) if cpu_classes == "all" else ("amx", "vnni"))
    for name, layer in found.layers.items():
        assert (layer.range, layer.smooth, layer.bias) == (None, None, None)
        expected = quantize_weight(targets.weights[name], "abs_max", cpu_classes=cpu_classes)
        np.testing.assert_array_equal(layer.integers * layer.scales, dequantize(expected))


def test_dynamic_quantizes_a_shared_weight_once() -> None:
    targets = find_targets(graph("h = MatMul (x, a)", "y = MatMul (h, a)"))
    assert len(targets.layers) == 2
    assert list(dynamic(targets).layers) == ["a"]
