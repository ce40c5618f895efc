"""The seven thresholds against brute force on the raw arrays, which knows nothing of histograms that grow."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tersely.errors import UserError
from tersely.quantize.calibrators import CALIBRATORS, Hist, find, range_of
from tersely.quantize.calibrators.kl import divergence
from tersely.quantize.statistics import Statistics

RANDOM = np.random.default_rng(11)
NORMAL = RANDOM.normal(size=(600, 16)).astype(np.float32)
SCALES = np.exp(RANDOM.normal(size=16)).astype(np.float32)
TENSORS = {
    "normal": NORMAL,
    "heavy_tailed": RANDOM.standard_t(3, size=(600, 16)).astype(np.float32),
    "outlier_channels": NORMAL * SCALES * np.where(np.arange(16) == 3, 12, 1).astype(np.float32),
    "gelu": (NORMAL * (1 + np.tanh(0.8 * (NORMAL + 0.045 * NORMAL**3))) / 2).astype(np.float32),
    "probabilities": RANDOM.beta(0.2, 3, size=(600, 16)).astype(np.float32),
    "negative": -np.abs(NORMAL) - 2,
    "just_above_a_power_of_two": NORMAL * np.float32(2.001 / np.abs(NORMAL).max()),
}
LENGTHS = np.array([100, 1, 250, 49, 200])


def observed(values: Any, lengths: Any = None) -> Statistics:
    statistics = Statistics()
    statistics.observe(values, np.array([len(values)]) if lengths is None else lengths)
    return statistics


def settled(name: str, values: Any, lengths: Any = None) -> float:
    return CALIBRATORS[name].settle(observed(values, lengths))


def quantized(values: Any, threshold: float) -> Any:
    low, high = min(max(values.min(), -threshold), 0.0), max(min(values.max(), threshold), 0.0)
    step = (high - low) / 255
    zero = np.rint(-low / step)
    return (np.clip(np.rint(values / step) + zero, 0, 255) - zero) * step


ERRORS = {
    "mse": lambda values, threshold: np.mean((values - quantized(values, threshold)) ** 2),
    "emd": lambda values, threshold: np.mean(
        np.abs(np.sort(values, None) - np.sort(quantized(values, threshold), None))
    ),
}


def divergences(values: Any) -> dict[int, float]:
    """KL(P‖Q) by clip point, bin by bin from the definition."""
    counts = np.histogram(np.abs(values), 2048, (0, np.abs(values).max()))[0].astype(float)
    found = {}
    for clip in range(1024, 2049):
        if counts[clip - 1] == 0:
            continue
        kept = counts[:clip]
        p = kept.copy()
        p[-1] += counts[clip:].sum()
        level = np.arange(clip) * 127 // clip
        in_use = kept > 0
        mass, bins = np.bincount(level, kept), np.bincount(level, in_use)
        q = np.where(in_use, (mass / np.maximum(bins, 1))[level], 0)
        p, q = p[in_use] / p.sum(), q[in_use] / q.sum()
        found[clip] = float((p * np.log(p / q)).sum())
    return found


def test_table_holds_the_seven_by_their_names() -> None:
    assert list(CALIBRATORS) == ["KL", "abs_max", "min_max", "avg", "hist", "mse", "emd"]
    assert all(find(name) is calibrator and calibrator.name == name for name, calibrator in CALIBRATORS.items())


@pytest.mark.parametrize(("name", "meant"), [("kl", "KL"), ("absmax", "abs_max"), ("MSE", "mse")])
def test_unknown_names_are_refused_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"'{name}'. Did you mean '{meant}'"):
        find(name)


@pytest.mark.parametrize("kind", TENSORS)
def test_abs_max_min_max_and_avg_are_exact(kind: str) -> None:
    values = TENSORS[kind]
    largest = np.abs(values).max()
    samples = np.split(values, np.cumsum(LENGTHS)[:-1])
    assert settled("abs_max", values) == settled("min_max", values) == largest
    expected = np.mean([np.abs(sample).max() for sample in samples], dtype=float)
    assert settled("avg", values, LENGTHS) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("share", [None, 0.99])
def test_hist_is_the_quantile_of_the_magnitudes(kind: str, share: float | None) -> None:
    magnitudes = np.abs(TENSORS[kind])
    got = (Hist(share) if share else CALIBRATORS["hist"]).settle(observed(TENSORS[kind]))
    assert got == pytest.approx(
        np.quantile(magnitudes, share or 0.9999, method="inverted_cdf"), abs=float(magnitudes.max()) / 4096
    )


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("name", ["mse", "emd"])
def test_mse_and_emd_find_the_least_error_on_the_raw_values(kind: str, name: str) -> None:
    values = TENSORS[kind].astype(np.float64)
    largest = np.abs(values).max()
    errors = {share: ERRORS[name](values, share / 50 * largest) for share in range(15, 51)}
    share = settled(name, TENSORS[kind]) / largest * 50
    assert share == pytest.approx(round(share), abs=1e-9)
    assert errors[round(share)] <= min(errors.values()) * 1.002


@pytest.mark.parametrize("name", ["mse", "emd"])
def test_mse_and_emd_weigh_all_batches_together(name: str) -> None:
    easy, hard = NORMAL / 50, TENSORS["heavy_tailed"]
    folded = observed(easy)
    folded.merge(observed(hard))
    both = np.concatenate([easy, hard]).astype(np.float64)
    largest = np.abs(both).max()
    errors = [ERRORS[name](both, share / 50 * largest) for share in range(15, 51)]
    got = CALIBRATORS[name].settle(folded)
    assert ERRORS[name](both, got) <= min(errors) * 1.002
    assert got > settled(name, easy) * 3  # the easiest batch does not decide


@pytest.mark.parametrize("kind", TENSORS)
def test_divergence_from_running_sums_is_that_of_the_definition(kind: str) -> None:
    magnitudes = np.abs(TENSORS[kind])
    expected = divergences(magnitudes)
    counts = np.histogram(magnitudes, 2048, (0, magnitudes.max()))[0].astype(float)
    got = divergence(counts, np.array(list(expected)))
    np.testing.assert_allclose(got, list(expected.values()), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["normal", "heavy_tailed", "gelu", "probabilities"])
def test_kl_equals_brute_force_where_both_bin_alike(kind: str) -> None:
    magnitudes = np.abs(TENSORS[kind].astype(np.float64))
    just_below = np.nextafter(np.float32(4), np.float32(0))  # then bins of max/2048 are four of the histogram's
    values = (TENSORS[kind] * (3.9 / magnitudes.max())).astype(np.float32)
    values[0, 0] = just_below
    expected = divergences(values)
    clip = settled("KL", values) / just_below * 2048
    assert round(clip) == min(expected, key=lambda place: expected[place])


@pytest.mark.parametrize("kind", TENSORS)
def test_kl_is_close_to_the_least_divergence_whatever_the_largest_value(kind: str) -> None:
    values = TENSORS[kind]
    expected = divergences(values)
    largest = float(np.abs(values).max())
    clip = settled("KL", values) / largest * 2048
    assert clip == pytest.approx(round(clip), abs=1e-6)
    near = [expected[place] for place in range(round(clip) - 1, round(clip) + 2) if place in expected]
    span = max(expected.values()) - min(expected.values())
    assert min(near) <= min(expected.values()) + 0.02 * span


def test_kl_keeps_what_an_outlier_leaves_empty_between() -> None:
    values = NORMAL.copy()
    values[0, 0] = 1000  # no bin from 1024 to 2047 holds anything
    assert settled("KL", values) == 1000


def test_kl_clips_nothing_where_it_gains_nothing() -> None:
    two = np.repeat(np.array([[0.73], [1.0]], np.float32), 500, axis=0)  # clipped at 0.73, P and Q are one bin each
    assert settled("KL", two) == 1.0


def test_kl_clips_a_thin_tail_and_keeps_a_flat_one() -> None:
    thin = RANDOM.standard_t(4, size=(4000, 16)).astype(np.float32)
    flat = RANDOM.uniform(-1, 1, size=(4000, 16)).astype(np.float32)
    assert settled("KL", thin) < 0.75 * np.abs(thin).max()
    assert settled("KL", flat) > 0.95 * np.abs(flat).max()


@pytest.mark.parametrize("name", ["abs_max", "min_max"])
def test_more_data_never_narrows_a_range(name: str) -> None:
    statistics, last = Statistics(), 0.0
    for sample in np.split(TENSORS["heavy_tailed"], 12):
        statistics.observe(sample, np.array([len(sample)]))
        assert CALIBRATORS[name].settle(statistics) >= last
        last = CALIBRATORS[name].settle(statistics)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_nested_sets_of_samples_settle_from_one_pass(name: str) -> None:
    statistics = Statistics()
    samples = np.split(TENSORS["outlier_channels"], 6)
    for number, sample in enumerate(samples, 1):
        statistics.observe(sample, np.array([len(sample)]))
        alone = settled(name, np.concatenate(samples[:number]), np.full(number, 100))
        assert CALIBRATORS[name].settle(statistics) == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name != "KL"])  # its minima lie too near each other
def test_thresholds_scale_by_any_factor(name: str) -> None:
    for factor in (3.0, 0.07):
        scaled = settled(name, TENSORS["heavy_tailed"] * np.float32(factor), LENGTHS)
        grid = 0.02 * settled("abs_max", TENSORS["heavy_tailed"]) if name in ("mse", "emd") else 0.002
        assert scaled / factor == pytest.approx(settled(name, TENSORS["heavy_tailed"], LENGTHS), abs=grid * 1.001)


NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True)
ANY = arrays(np.float32, st.tuples(st.integers(0, 12), st.integers(1, 3)), elements=NUMBERS)


@settings(deadline=None, max_examples=80)
@given(values=ANY, repeated=st.integers(1, 40))
def test_any_float_gives_a_threshold_and_a_range_with_zero_inside(values: Any, repeated: int) -> None:
    statistics = observed(np.repeat(values, repeated, axis=0))
    usable = values[np.isfinite(values)].astype(np.float64)
    for calibrator in CALIBRATORS.values():
        threshold = calibrator.settle(statistics)
        assert 0 <= threshold <= np.abs(usable).max(initial=0) * (1 + 1e-9), calibrator.name
        found = range_of(statistics, threshold)
        assert min(usable.min(initial=0), 0) <= found.low <= 0 <= found.high <= max(usable.max(initial=0), 0)


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("value", [0.7, -2.0, 0.0])
def test_a_constant_tensor_is_kept_whole(name: str, value: float) -> None:
    statistics = observed(np.full((50, 4), value, np.float32))
    threshold = CALIBRATORS[name].settle(statistics)
    assert threshold == pytest.approx(abs(value), rel=1e-6)
    assert range_of(statistics, threshold).high == (threshold if value > 0 else 0.0)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_nothing_observed_gives_zero(name: str) -> None:
    assert CALIBRATORS[name].settle(Statistics()) == 0.0
    found = range_of(Statistics(), 0.0)
    assert (found.low, found.high) == (0.0, 0.0)


def test_ranges_clip_on_either_side_and_waste_nothing_on_one_sign() -> None:
    statistics = observed(TENSORS["gelu"])
    assert range_of(statistics, 1.0).high == 1.0
    assert range_of(statistics, 1.0).low == pytest.approx(TENSORS["gelu"].min())
    assert range_of(observed(TENSORS["probabilities"]), 0.5).low == 0.0
    negative = range_of(observed(TENSORS["negative"]), 3.0)
    assert (negative.low, negative.high) == (-3.0, 0.0)


@pytest.mark.parametrize("threshold", [float("nan"), -1.0])
def test_a_threshold_that_is_none_is_refused(threshold: float) -> None:
    with pytest.raises(UserError, match="from 0 up"):
        range_of(observed(NORMAL), threshold)


def test_settling_all_seven_takes_milliseconds() -> None:
    statistics = observed(TENSORS["outlier_channels"])
    start = time.process_time()
    for _ in range(10):
        for calibrator in CALIBRATORS.values():
            calibrator.settle(statistics)
    assert time.process_time() - start < 0.6  # 0.06 s alone
