"""What is observed inside a graph equals torch's own activations without padding, however the rows are batched."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from reference import changed, make_features, tokens_of, torch_inputs, value_of

from tersely.graphs.layers import find_layers
from tersely.quantize import observe as observing
from tersely.quantize.observe import observe, real_tokens, watch
from tersely.quantize.statistics import Statistics

FEATURES = make_features(40)
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)


def inputs(proto: Any) -> dict[str, int | None]:
    return {layer.input: -2 for layer in find_layers(proto)}


def observed(proto: Any, features: Any, values: Any = None, **options: Any) -> dict[str, Statistics]:
    ((end, found),) = observe(proto, values or inputs(proto), features, pad_id=0, **options)
    assert end == len(features)
    return found


def assert_same(found: Statistics, expected: Statistics, tolerance: float = 1e-4) -> None:
    assert (found.samples, found.finite) == (expected.samples, expected.finite)
    assert found.histogram.counts.sum() == expected.histogram.counts.sum()
    for part in ("low", "high", "mean_max", "channel_max"):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), rtol=tolerance, atol=tolerance)


def test_statistics_are_those_of_torch_without_padding(small: Any) -> None:
    proto, module = small()
    found, rows = observed(proto, FEATURES), torch_inputs(module, FEATURES)
    for layer in find_layers(proto):
        seen, tokens = found[layer.input], tokens_of(rows, layer.name)
        assert seen.samples == len(FEATURES)
        assert seen.low == pytest.approx(tokens.min(), abs=1e-4)
        assert seen.high == pytest.approx(tokens.max(), abs=1e-4)
        np.testing.assert_allclose(seen.channel_max, np.abs(tokens).max(axis=0), atol=1e-4)
        mean_max = np.mean([np.abs(row[layer.name][0]).max() for row in rows])
        assert seen.mean_max == pytest.approx(mean_max, abs=1e-4)
        assert seen.histogram.counts.sum() == tokens.size


@pytest.mark.parametrize(("rows", "tokens"), [(1, 1024), (3, 1024), (32, 40)])
def test_neither_batches_nor_order_matter(small: Any, monkeypatch: Any, rows: int, tokens: int) -> None:
    proto = small().proto
    expected = observed(proto, FEATURES)
    monkeypatch.setattr(observing, "BATCH_ROWS", rows)
    monkeypatch.setattr(observing, "BATCH_TOKENS", tokens)
    found = observed(proto, FEATURES[::-1])
    assert found.keys() == expected.keys() != set()
    for name, statistics in found.items():
        assert_same(statistics, expected[name])


def test_padding_is_never_seen(small: Any) -> None:
    """The embedding of padding is a spike, which the norm leaves far above what any other token has there."""

    def spike(table: Any) -> None:
        table[0] = 0
        table[0, 9] = 1e4

    proto, module = small()
    spiked = changed(proto, bert__embeddings__word_embeddings__weight=spike)
    layers = find_layers(proto)
    rows = torch_inputs(module, FEATURES)  # feeds no padding, so that its table may stay as it is
    expected = {layer.input: np.abs(tokens_of(rows, layer.name)).max(axis=0) for layer in layers}
    first = layers[0].input
    shown = value_of(spiked, first, np.array([[5, 6, 0, 0]]))
    assert shown[0, 2, 9] > 1.5 * expected[first][9]  # else nothing could be seen
    for name, statistics in observed(spiked, FEATURES).items():
        np.testing.assert_allclose(statistics.channel_max, expected[name], atol=1e-4)


def test_nested_stretches_merge_to_the_whole(small: Any) -> None:
    proto = small().proto
    cuts = [16, 4, 4, 0, 99]  # what lies outside, and what comes twice, cuts nothing
    merged = {name: Statistics() for name in inputs(proto)}
    ends = []
    for end, stretch in observe(proto, inputs(proto), FEATURES, pad_id=0, cuts=cuts):
        for name, statistics in stretch.items():
            merged[name].merge(statistics)
            assert merged[name].samples == end
        ends.append(end)
        nested = observed(proto, FEATURES[:end])
        for name in merged:
            assert_same(merged[name], nested[name])
    assert ends == [4, 16, len(FEATURES)]


def test_divisors_divide(small: Any) -> None:
    proto, module = small()
    layer = find_layers(proto)[5]
    divisor = np.random.default_rng(3).lognormal(0, 1, layer.shape[0]).astype(np.float32)
    found = observed(proto, FEATURES, divisors={layer.input: divisor})
    tokens = tokens_of(torch_inputs(module, FEATURES), layer.name)
    np.testing.assert_allclose(
        found[layer.input].channel_max, np.abs(tokens / divisor).max(axis=0), rtol=1e-3, atol=1e-4
    )
    plain = observed(proto, FEATURES)
    others = [name for name in found if name != layer.input]
    for name in others:
        assert_same(found[name], plain[name], tolerance=0)


def test_no_rows_give_empty_statistics(small: Any) -> None:
    proto = small().proto
    found = {name: statistics.samples for name, statistics in observed(proto, []).items()}
    assert found == dict.fromkeys(inputs(proto), 0) != {}


def test_watched_tokens_are_those_of_torch(small: Any) -> None:
    proto, module = small()
    layer = find_layers(proto)[4]
    seen = [shown[layer.input] for shown in watch(proto, {layer.input: -2}, FEATURES, 0, title="look")]
    assert len(seen) > 1
    found = np.concatenate(seen)
    expected = tokens_of(torch_inputs(module, FEATURES), layer.name)
    assert found.shape == expected.shape
    order = [np.lexsort(np.round(tokens, 2).T[:3]) for tokens in (found, expected)]
    assert abs(found[order[0]] - expected[order[1]]).mean() < 0.01
    np.testing.assert_allclose(found.sum(axis=0), expected.sum(axis=0), atol=0.05)


def test_batch_is_gone_when_the_next_one_comes(small: Any) -> None:
    proto = small().proto
    kept = list(watch(proto, inputs(proto), FEATURES, 0, title="look"))
    assert [len(shown) for shown in kept] == [0] * len(kept)


@pytest.mark.parametrize("folded", [True, False])
def test_constants_are_looked_at_once(folded: bool) -> None:
    table = np.arange(12, dtype=np.float32).reshape(1, 6, 2)
    lines = ["f = Cast <to = 1> (input_ids)", "y = Add (f, s)", *([] if folded else ["c = Mul (table, one)"])]
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (int64[n, l] input_ids) => (float[n, l] y) '
        f"<float s = {{2}}, float one = {{1}}> {{ {' '.join(lines)} }}"
    )
    name = "table" if folded else "c"
    proto.graph.initializer.append(numpy_helper.from_array(table, "table"))
    features = make_features(90)
    ((_, found),) = observe(proto, {name: None}, features, pad_id=0)
    assert (found[name].samples, found[name].low, found[name].high) == (1, 0.0, 11.0)
    assert found[name].histogram.counts.sum() == 12
    stretches = list(observe(proto, {name: None}, features, pad_id=0, cuts=[10, 20]))
    assert [stretch[name].samples for _, stretch in stretches] == [1, 0, 0]


def heads(array: np.ndarray, mask: np.ndarray) -> list[list[float]]:
    """By loops, of [rows, heads, length, size], every real position's vectors, row by row."""
    rows = []
    for row, real in enumerate(mask):
        rows.append([array[row, head, place] for place in np.flatnonzero(real) for head in range(array.shape[1])])
    return rows


@pytest.mark.parametrize("layout", ["[B,h,L,d]", "[B,h,d,L]", "[B*h,L,d]", "[B*h,d,L]", "[B,L,d]", "[B*L,d]"])
@pytest.mark.parametrize("counted", ["from the end", "from the start"])
def test_real_positions_are_found_in_every_layout(layout: str, counted: str) -> None:
    axes = layout.strip("[]").split(",")
    count = 2 if "h" in layout else 1
    array = np.random.default_rng(5).normal(size=(3, count, 4, 6)).astype(np.float32)
    expected = heads(array, MASK)
    laid_out = array.swapaxes(2, 3) if axes[-1] == "L" else array
    shapes = {"[B*h,L,d]": (6, 4, 6), "[B*h,d,L]": (6, 6, 4), "[B,L,d]": (3, 4, 6), "[B*L,d]": (12, 6)}
    laid_out = laid_out.reshape(shapes.get(layout, laid_out.shape))
    axis = 1 if layout == "[B*L,d]" else axes.index("L")
    axis = axis - max(3, len(axes)) if counted == "from the end" else axis
    tokens, lengths = real_tokens(laid_out, MASK, axis)
    assert lengths.tolist() == [len(row) for row in expected]
    for part, row in zip(np.split(tokens, np.cumsum(lengths)[:-1]), expected, strict=True):
        assert sorted(map(tuple, part.tolist())) == sorted(tuple(vector.tolist()) for vector in row)


@pytest.mark.parametrize("channels", [4, 5, 12])  # 4 is the length too: a channel is no position for that
@pytest.mark.parametrize("kept", [(), (1,), (2, 1)])  # pooled, or the first position alone
def test_values_without_positions_are_taken_whole(channels: int, kept: tuple[int, ...]) -> None:
    array = np.random.default_rng(6).normal(size=(3, *kept, channels)).astype(np.float32)
    tokens, lengths = real_tokens(array, MASK, -2)
    np.testing.assert_array_equal(tokens, array.reshape(-1, channels))
    assert lengths.tolist() == [len(tokens) // 3] * 3


@pytest.mark.parametrize("shape", [(1, 4, 5), (1, 7, 5), (7, 5), (4, 5)])
def test_tables_that_have_no_rows_are_one_sample(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float32)
    tokens, lengths = real_tokens(array, MASK, -2)
    assert tokens.shape == (shape[-2], 5)
    assert lengths.tolist() == [shape[-2]]


def test_every_mask_picks_its_own_positions() -> None:
    value = np.arange(3 * 3, dtype=np.float32).reshape(3, 3, 1)
    for bits in product([0, 1], repeat=4):
        mask = np.array([[1, 1, 1], [1, *bits[:2]], [1, *bits[2:4]]], bool)
        tokens, lengths = real_tokens(value, mask, -2)
        assert tokens[:, 0].tolist() == value[mask][:, 0].tolist()
        assert lengths.tolist() == mask.sum(axis=1).tolist()
