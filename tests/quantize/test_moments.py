"""Streamed moments equal those of all tokens at once, with their quantized selves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import Counter, make_features, tokens_of, torch_inputs

from tersely.quant_map import Range
from tersely.quantize import refine as streaming
from tersely.quantize.refine import Feed, stream_moments
from tersely.quantize.targets import find_targets

LEARN, JUDGE = make_features(40, seed=1), make_features(20, seed=2)


def by_hand(x: np.ndarray, range_: Range) -> np.ndarray:
    """u8 codes with a zero point, in double precision."""
    step = float(np.float32((range_.high - range_.low) / 255))
    zero = round(-range_.low / step)
    return (np.clip(np.rint(x.astype(np.float64) / step) + zero, 0, 255) - zero) * step


def feeds_of(proto: Any) -> dict[str, Feed]:
    """Of three layers: a range that clips, a divisor, both sides of 0."""
    layers = {layer.name: layer for layer in find_targets(proto).layers}
    divisor = np.random.default_rng(0).lognormal(0, 0.5, 64).astype(np.float32)
    found = {
        "bert.encoder.layer.0.attention.self.query.weight": (Range(-1.5, 2.0), divisor),
        "bert.encoder.layer.1.attention.output.dense.weight": (Range(-0.7, 0.9), None),
        "bert.encoder.layer.1.output.dense.weight": (Range(-0.17, 3.0), None),
    }
    return {
        name: Feed({layers[name].input: -2}, range_, divided, layers[name].shape[0])
        for name, (range_, divided) in found.items()
    }


@pytest.mark.parametrize(("most", "passes"), [(streaming.MATRIX_BYTES, 1), (1, 3), (2 * 3 * 4 * (64**2 + 128**2), 2)])
def test_moments_are_those_of_all_tokens_at_once(small: Any, monkeypatch: Any, most: int, passes: int) -> None:
    proto, module = small()
    monkeypatch.setattr(streaming, "MATRIX_BYTES", most)
    feeds = feeds_of(proto)
    found: dict[Feed, Any] = {}
    counter = Counter()
    for portion in stream_moments(proto, list(feeds.values()), (LEARN, JUDGE), 0, matrices=True, progress=counter):
        found |= portion
    assert counter.counts == {"moments": passes * (len(LEARN) + len(JUDGE))}
    rows = [torch_inputs(module, features) for features in (LEARN, JUDGE)]
    for name, feed in feeds.items():
        for moments, seen in zip(found[feed], rows, strict=True):
            x = tokens_of(seen, name).astype(np.float64)
            x = x if feed.divisor is None else x / feed.divisor
            rounded = by_hand(x, feed.range)
            assert moments.tokens == len(x)
            expected = {
                "mean": x.mean(axis=0),
                "mean_quantized": rounded.mean(axis=0),
                "plain": x.T @ x / len(x),
                "cross": rounded.T @ x / len(x),
                "second": rounded.T @ rounded / len(x),
            }
            step = (feed.range.high - feed.range.low) / 255
            for part, wanted in expected.items():
                # A value between two codes may fall to either side: torch and the engine differ by 1e-6.
                np.testing.assert_allclose(moments[part], wanted, atol=step * 0.02, rtol=1e-3)


def test_means_alone_keep_no_matrices(small: Any) -> None:
    feeds = list(feeds_of(small().proto).values())
    (found,) = stream_moments(small().proto, feeds, (LEARN,), 0, matrices=False)
    assert found.keys() == set(feeds)
    for (moments,) in found.values():
        assert moments["mean"].ndim == moments["mean_quantized"].ndim == 1
        with pytest.raises(KeyError, match="second"):
            moments["second"]


def test_one_pass_serves_any_number_of_feeds(small: Any) -> None:
    proto = small().proto
    feeds = list(feeds_of(proto).values())
    value, axis = next(iter(feeds[0].values.items()))
    more = [Feed({value: axis}, Range(-1, high), None, 64) for high in (1, 2, 3, 4)]
    counter = Counter()
    (found,) = stream_moments(proto, [*feeds, *more], (LEARN, JUDGE), 0, matrices=False, progress=counter)
    assert len(found) == 7
    assert counter.counts == {"moments": len(LEARN) + len(JUDGE)}
    assert list(stream_moments(proto, [], (LEARN,), 0, matrices=True, progress=counter)) == []
    assert counter.counts == {"moments": len(LEARN) + len(JUDGE)}  # nothing was asked, nothing ran


def test_passes_are_as_few_as_memory_allows(small: Any, monkeypatch: Any) -> None:
    proto = small().proto
    (value, axis), *_ = next(iter(feeds_of(proto).values())).values.items()
    monkeypatch.setattr(streaming, "MATRIX_BYTES", 2 * (3 * 4 * 64**2))  # two of these fit
    feeds = [Feed({value: axis}, Range(-1, high), None, 64) for high in range(1, 8)]
    portions = [len(found) for found in stream_moments(proto, feeds, (LEARN[:2],), 0, matrices=True)]
    assert portions == [2, 2, 2, 1]
    means = [len(found) for found in stream_moments(proto, feeds, (LEARN[:2],), 0, matrices=False)]
    assert means == [7]


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20),
    st.floats(-50, 0, width=32),
    st.floats(0.5, 50, width=32),
)
def test_rounding_to_codes_is_that_of_engines(values: list[float], low: float, high: float) -> None:
    x, range_ = np.array(values, np.float32), Range(low, high)
    found = range_.fake_quantize(x)
    step, zero = range_.unsigned()
    codes = found / step + zero
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-3)
    assert codes.min() > -0.01
    assert codes.max() < 255.01
    inside = (x >= (0 - zero) * step) & (x <= (255 - zero) * step)
    assert (np.abs(found - x)[inside] <= step * 0.5001).all()
    np.testing.assert_array_equal(range_.fake_quantize(np.zeros(1, np.float32)), [0])
    assert x.dtype == found.dtype == np.float32
    np.testing.assert_array_equal(x, np.array(values, np.float32))  # what was given stays as it is
