"""The fold against plain NumPy on the raw arrays: exact, whatever the order and the cut into batches."""

import copy
import time
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tersely.quantize.statistics import NARROWEST, SIDE, Distribution, Histogram, Statistics

# Of both signs, over forty orders of magnitude, with zeros: what makes the histogram grow far and at any time.
NUMBERS = st.one_of(
    st.just(0.0),
    st.floats(-(2.0**66), 2.0**66, width=32).filter(lambda number: abs(number) > 2.0**-66),
    st.sampled_from([-1.0, 1.0, 2.0, -4.0, 0.5]),  # on the edges of bins
)
SAMPLES = st.lists(
    st.integers(0, 5).flatmap(lambda tokens: arrays(np.float32, (tokens, 3), elements=NUMBERS)), min_size=1, max_size=6
)


def observed(*samples: Any) -> Statistics:
    statistics = Statistics()
    statistics.observe(np.concatenate(samples), np.array([len(sample) for sample in samples]))
    return statistics


def assert_equal(left: Statistics, right: Statistics) -> None:
    for name in ("low", "high", "samples", "finite", "largest", "least"):
        assert getattr(left, name) == getattr(right, name), name
    assert left.histogram.reach == right.histogram.reach
    np.testing.assert_array_equal(left.histogram.counts, right.histogram.counts)
    np.testing.assert_equal(left.channel_max, right.channel_max)
    assert left.mean_max == pytest.approx(right.mean_max, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(samples=SAMPLES, order=st.randoms(use_true_random=False))
def test_one_by_one_merged_in_any_order_equals_all_together(samples: list[Any], order: Any) -> None:
    together, in_turn, merged = observed(*samples), Statistics(), Statistics()
    for sample in samples:
        in_turn.observe(sample, np.array([len(sample)]))
    for sample in order.sample(samples, len(samples)):
        merged.merge(observed(sample))
    assert_equal(in_turn, together)
    assert_equal(merged, together)


@settings(deadline=None, max_examples=60)
@given(samples=SAMPLES)
def test_counts_are_those_of_numpy_and_extremes_exact(samples: list[Any]) -> None:
    statistics = observed(*samples)
    values = np.concatenate(samples)
    reach, counts = statistics.histogram.reach, statistics.histogram.counts
    largest = float(np.abs(values).max(initial=0))
    assert statistics.largest == largest < reach
    assert reach == NARROWEST or largest >= reach / 2
    places = np.floor(values.astype(np.float64).ravel() / reach * SIDE).astype(int) + SIDE
    np.testing.assert_array_equal(counts, np.bincount(places, minlength=2 * SIDE))
    held = [sample for sample in samples if len(sample)]
    assert statistics.samples == len(held)
    if held:
        assert (statistics.low, statistics.high) == (values.min(), values.max())
        np.testing.assert_array_equal(statistics.channel_max, np.abs(values).max(axis=0))
        assert statistics.mean_max == pytest.approx(np.mean([np.abs(sample).max() for sample in held], dtype=float))
        assert statistics.least == (0 if values.min() <= 0 <= values.max() else np.abs(values).min())


def test_growth_from_the_smallest_to_the_largest_float_keeps_every_count() -> None:
    histogram = Histogram()
    for exponent in (-140, -30, -1, 0, 5, 5, 127):
        histogram.add(np.array([2.0**exponent, -(2.0**exponent)], np.float32))
    assert histogram.counts.sum() == 14
    assert histogram.reach == 2.0**128
    assert histogram.counts[SIDE + SIDE // 2] == histogram.counts[SIDE // 2] == 1  # ±2¹²⁷
    assert histogram.counts[SIDE] == histogram.counts[SIDE - 1] == 6


def test_merge_leaves_the_other_alone_and_a_copy_goes_its_own_way() -> None:
    small, large = observed(np.ones((2, 3), np.float32)), observed(np.full((2, 3), 100, np.float32))
    kept = copy.deepcopy(small)
    large.merge(small)
    assert_equal(small, kept)
    kept.observe(np.full((1, 3), -5, np.float32), np.array([1]))
    assert (small.low, small.samples, small.channel_max.tolist()) == (1.0, 1, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_noted_and_left_out(bad: float) -> None:
    values = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    broken = values.copy()
    broken[3, 1] = bad
    broken[30:] = bad  # a sample with nothing else
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        statistics = observed(broken[:10], broken[10:30], broken[30:])
    usable = broken[np.isfinite(broken)]
    assert not statistics.finite
    assert (statistics.low, statistics.high) == (usable.min(), usable.max())
    assert statistics.histogram.counts.sum() == len(usable)
    assert statistics.samples == 2
    np.testing.assert_array_equal(statistics.channel_max, np.abs(np.where(np.isfinite(broken), broken, 0)).max(axis=0))
    merged = observed(values)
    assert merged.finite
    merged.merge(statistics)
    assert not merged.finite


def test_only_nan_leaves_it_as_nothing_seen() -> None:
    statistics = observed(np.full((3, 2), np.nan, np.float32))
    assert (statistics.samples, statistics.largest, statistics.least, statistics.mean_max) == (0, 0.0, 0.0, 0.0)
    assert statistics.channel_max is None
    assert not statistics.finite


def test_a_changing_number_of_channels_gives_no_maximum_per_channel_in_any_order() -> None:
    parts = [np.ones((2, channels), np.float32) for channels in (3, 5, 3)]
    for order in ([0, 1, 2], [1, 0, 2], [0, 2, 1]):
        folded, merged = Statistics(), Statistics()
        for place in order:
            folded.observe(parts[place], np.array([2]))
            merged.merge(observed(parts[place]))
        assert folded.channel_max is merged.channel_max is None
        assert folded.histogram.counts.sum() == 22
    statistics = observed(parts[0])
    statistics.merge(folded)
    assert statistics.channel_max is None


def test_no_tokens_say_nothing() -> None:
    statistics = observed(np.ones((2, 3), np.float32))
    before = copy.deepcopy(statistics)
    statistics.observe(np.zeros((0, 7), np.float32), np.array([0, 0]))
    assert_equal(statistics, before)


def test_halves_and_columns_of_other_arrays_are_taken_as_they_are() -> None:
    values = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float16)
    assert_equal(observed(values.T[:4]), observed(np.array(values.T[:4], np.float32)))


def test_lengths_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[3, channels\]"):
        Statistics().observe(np.ones((4, 2), np.float32), np.array([1, 2]))
    with pytest.raises(ValueError, match=r"\[4, channels\]"):
        Statistics().observe(np.ones(4, np.float32), np.array([4]))


def test_memory_is_flat_in_samples_and_tokens() -> None:
    values = np.random.default_rng(0).normal(size=(4096, 512)).astype(np.float32)  # 8 MB
    statistics = Statistics()
    tracemalloc.start()
    try:
        statistics.observe(values[:64], np.array([64]))
        held, _ = tracemalloc.get_traced_memory()
        for _ in range(3):
            statistics.observe(values, np.full(64, 64))
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - held < 20_000
    assert peak < 2_000_000


def test_observing_a_million_values_takes_a_few_milliseconds() -> None:
    values = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
    statistics = Statistics()
    times = []
    for _ in range(5):
        start = time.process_time()
        statistics.observe(values, np.full(16, 64))
        times.append(time.process_time() - start)
    assert min(times) < 0.03  # 3 ms alone; np.histogram takes 60


@pytest.mark.parametrize("low", [-3.0, -1.0, 0.0, 1.0])
def test_moments_equal_sums_over_values_spread_within_bins(low: float) -> None:
    random = np.random.default_rng(3)
    statistics = observed(random.uniform(low, 4.0, (500, 2)).astype(np.float32))
    distribution = statistics.values()
    parts = 100
    middles = (np.arange(parts) + 0.5) / parts
    spread = (distribution.edges[:-1, None] + np.diff(distribution.edges)[:, None] * middles).ravel()
    weight = np.repeat(distribution.counts / parts, parts)
    points = random.uniform(low - 0.5, 4.5, (3, 7))
    expected = [[(weight * spread**order)[spread <= point].sum() for point in points.ravel()] for order in range(3)]
    got = distribution.moments(points)
    np.testing.assert_allclose(got.reshape(3, -1), expected, rtol=1e-5, atol=0.4)
    ends = distribution.moments(np.array([-np.inf, np.inf]))
    np.testing.assert_allclose(ends[:, 0], 0)
    assert ends[0, 1] == 1000


def test_moments_of_an_even_spread_are_its_integrals() -> None:
    spread = Distribution(np.array([-1.0, 3.0, 4.0]), np.array([4.0, 0.0]))  # one value per unit of length
    points = np.array([-2.0, 1.0, 2.0, 3.5])
    expected = [[0, 2, 3, 4], [0, 0, 1.5, 4], [0, 2 / 3, 3, 28 / 3]]
    np.testing.assert_allclose(spread.moments(points), expected)


def test_a_point_counts_from_where_it_lies() -> None:
    point = Distribution(np.array([2.0, 2.0]), np.array([5.0]))
    np.testing.assert_array_equal(point.moments(np.array([1.9, 2.0, 2.1])), [[0, 5, 5], [0, 10, 10], [0, 20, 20]])
    assert point.quantile(0.5) == 2.0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99, 0.9999, 1.0])
def test_quantiles_lie_within_one_bin_of_the_raw_ones(share: float) -> None:
    values = np.random.default_rng(5).standard_t(3, size=(3000, 4)).astype(np.float32)
    statistics = observed(values)
    width = statistics.histogram.reach / SIDE
    for distribution, raw in ((statistics.values(), values), (statistics.magnitudes(), np.abs(values))):
        expected = np.quantile(raw, share, method="inverted_cdf")
        assert distribution.quantile(share) == pytest.approx(expected, abs=width)


def test_magnitudes_of_negative_values_on_edges_are_those_of_the_positive() -> None:
    values = np.array([[1.0, 1.5, 2.0, 3.0, 3.0]], np.float32)
    plus, minus = observed(values).magnitudes(), observed(-values).magnitudes()
    points = np.array([0.9, 1.2, 1.7, 2.5, 3.0])
    np.testing.assert_array_equal(plus.moments(points)[0], [0, 1, 2, 3, 5])
    np.testing.assert_array_equal(minus.moments(points)[0], [0, 1, 2, 3, 5])
