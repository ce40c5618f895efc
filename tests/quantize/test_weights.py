"""INT8 weights against plain NumPy rounding, and against every pair of integers that would have been allowed."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tersely.errors import UserError
from tersely.quantize.weights import QuantWeight, dequantize, quantize_weight, unsafe_pairs

RANDOM = np.random.default_rng(5)
KINDS = ["channel_wise_abs_max", "abs_max"]


def heavy(inputs: int, outputs: int) -> Any:
    """Weights with the tails that trained ones have."""
    return (RANDOM.standard_t(4, (inputs, outputs)) * 0.03).astype(np.float32)


def weighted_error(weight: Any, quantized: QuantWeight, moments: Any) -> Any:
    lost = weight.astype(np.float64) - dequantize(quantized).astype(np.float64)
    return (moments[:, None] * lost**2).sum(axis=0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    inputs=st.integers(1, 9),
    outputs=st.integers(1, 5),
    size=st.floats(1e-30, 1e30),
    kind=st.sampled_from(KINDS),
    cpu_classes=st.sampled_from(["all", "vnni"]),
    weighted=st.booleans(),
)
def test_integers_are_in_range_and_pair_safe(
    seed: int, inputs: int, outputs: int, size: float, kind: str, cpu_classes: str, weighted: bool
) -> None:
    random = np.random.default_rng(seed)
    weight = (random.standard_t(2, (inputs, outputs)) * size).astype(np.float32)
    moments = random.exponential(size=inputs).astype(np.float32) if weighted else None
    quantized = quantize_weight(weight, kind, cpu_classes=cpu_classes, moments=moments)
    assert quantized.integers.dtype == np.int8
    assert quantized.scales.dtype == np.float32
    assert quantized.scales.shape == ((1,) if kind == "abs_max" else (outputs,))
    assert np.abs(quantized.integers.astype(int)).max() <= 127
    assert (quantized.scales > 0).all()
    if cpu_classes == "all":
        assert unsafe_pairs(quantized.integers) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cpu_classes", ["all", "vnni"])
def test_without_moments_no_weight_moves_by_more_than_half_a_step(kind: str, cpu_classes: str) -> None:
    weight = heavy(65, 40)
    quantized = quantize_weight(weight, kind, cpu_classes=cpu_classes)
    assert (np.abs(weight - dequantize(quantized)) <= quantized.scales * 0.5001).all()


@pytest.mark.parametrize("axis", [0, None])
def test_vnni_equals_plain_rounding(axis: int | None) -> None:
    weight = heavy(64, 20)
    scales = np.atleast_1d(np.abs(weight).max(axis=axis) / np.float32(127))
    quantized = quantize_weight(weight, KINDS[0] if axis == 0 else KINDS[1], cpu_classes="vnni")
    np.testing.assert_allclose(quantized.scales, scales, rtol=1e-6)
    np.testing.assert_array_equal(quantized.integers, np.rint(weight / scales))


def test_pair_safe_step_is_the_smallest_within_one_percent() -> None:
    weight = heavy(128, 200)
    quantized = quantize_weight(weight)
    floor = np.abs(weight).max(axis=0) / 127
    finer = quantized.scales * 128 / 129.01
    integers = np.rint(weight / finer).astype(int)
    passed = (np.abs(integers[0::2] + integers[1::2]) > 128).any(axis=0)
    assert (passed | (quantized.scales <= floor * 1.00001)).all()
    assert passed.any()


def test_pair_safe_eight_bits_lose_less_than_seven() -> None:
    weight = heavy(384, 100)
    steps = np.abs(weight).max(axis=0) / 64
    seven = np.square(weight - np.rint(weight / steps) * steps).sum()
    assert np.square(weight - dequantize(quantize_weight(weight))).sum() < 0.6 * seven


@pytest.mark.parametrize("seed", range(5))
def test_a_pair_is_clipped_to_the_best_integers_there_are(seed: int) -> None:
    """Two large weights whose inputs count little: the step is fine and the pair is cut down."""
    random = np.random.default_rng(seed)
    weight = random.uniform(0.05, 0.1, (400, 1)).astype(np.float32)
    weight[:2, 0] = random.uniform(0.75, 1.0, 2)
    moments = np.ones(400, np.float32)
    moments[:2] = random.uniform(0.011, 0.03, 2)  # above the hundredth of the mean that every input counts
    quantized = quantize_weight(weight, moments=moments)
    step = float(quantized.scales[0])
    real = weight[:2, 0].astype(np.float64) / step
    assert np.rint(real).sum() > 128  # or there is nothing to see

    def lost(pair: tuple[int, int]) -> float:
        return float((moments[:2] * (real - pair) ** 2).sum())

    allowed = [pair for pair in itertools.product(range(128), repeat=2) if sum(pair) <= 128]
    assert lost(tuple(quantized.integers[:2, 0].tolist())) == pytest.approx(min(map(lost, allowed)), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cpu_classes", ["all", "vnni"])
def test_moments_never_raise_the_error_that_they_weigh(kind: str, cpu_classes: str) -> None:
    weight = heavy(96, 130)
    moments = RANDOM.exponential(size=96).astype(np.float32) + np.float32(0.1)
    plain = weighted_error(weight, quantize_weight(weight, kind, cpu_classes=cpu_classes), moments)
    chosen = weighted_error(weight, quantize_weight(weight, kind, cpu_classes=cpu_classes, moments=moments), moments)
    if kind == "abs_max":
        plain, chosen = plain.sum(), chosen.sum()
    assert (chosen <= plain * (1 + 1e-4)).all()
    assert np.sum(chosen) < 0.985 * np.sum(plain)


def test_moments_lower_the_error_of_the_output() -> None:
    sizes = RANDOM.lognormal(0, 1, 128)
    rows = RANDOM.normal(size=(2000, 128)) * sizes
    weight = heavy(128, 64)
    moments = np.square(RANDOM.normal(size=(2000, 128)) * sizes).mean(axis=0).astype(np.float32)
    plain, chosen = (
        np.square(rows @ (weight - dequantize(quantize_weight(weight, moments=known)))).mean()
        for known in (None, moments)
    )
    assert chosen < 0.95 * plain


@pytest.mark.parametrize("moments", [np.zeros(8, np.float32), np.full(8, np.inf, np.float32)])
def test_moments_that_say_nothing_count_as_equal(moments: Any) -> None:
    weight = heavy(8, 3)
    np.testing.assert_array_equal(
        quantize_weight(weight, moments=moments).integers,
        quantize_weight(weight, moments=np.ones(8, np.float32)).integers,
    )


def test_channels_of_zeros_and_of_next_to_nothing_are_fine() -> None:
    weight = np.zeros((4, 3), np.float32)
    weight[:, 1], weight[:, 2] = 1e-43, [1, 2, -3, 4]
    for kind, moments in itertools.product(KINDS, (None, np.ones(4, np.float32))):
        quantized = quantize_weight(weight, kind, moments=moments)
        assert np.isfinite(quantized.scales).all()
        assert not quantized.integers[:, 0].any()
        np.testing.assert_allclose(dequantize(quantized), weight, atol=0.04)


def test_weights_on_the_grid_come_back() -> None:
    integers = RANDOM.integers(-60, 61, (10, 4)).astype(np.int8)
    integers[0] = 127
    integers[1] = -5
    kept = QuantWeight(integers, np.array([0.5, 0.25, 2.0, 1.0], np.float32))
    again = quantize_weight(dequantize(kept))
    np.testing.assert_array_equal(again.integers, integers)
    np.testing.assert_array_equal(again.scales, kept.scales)


def test_bad_arguments_are_refused() -> None:
    weight = heavy(4, 2)
    with pytest.raises(UserError, match="abs_min"):
        quantize_weight(weight, "abs_min")
    with pytest.raises(UserError, match="avx2"):
        quantize_weight(weight, cpu_classes="avx2")
    with pytest.raises(UserError, match="each of 4 inputs"):
        quantize_weight(weight, moments=np.ones(2, np.float32))
    weight[1, 1] = np.nan
    with pytest.raises(UserError, match="NaN"):
        quantize_weight(weight)


def test_a_large_weight_takes_a_second_at_most() -> None:
    weight = RANDOM.normal(size=(768, 3072)).astype(np.float32)
    start = time.process_time()
    quantize_weight(weight, moments=np.ones(768, np.float32))
    assert time.process_time() - start < 1
