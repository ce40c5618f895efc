"""Smoothing vectors by their formula, and the choice of α by the error that the chosen one really has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tersely.quantize.smooth import ALPHAS, Smoothing, choose_smoothing, has_outliers, smoothing_vector
from tersely.quantize.weights import unsafe_pairs

RANDOM = np.random.default_rng(13)
WEIGHTS = [(RANDOM.normal(size=(64, 32)) * 0.05).astype(np.float32) for _ in range(2)]


def tokens(rows: int = 400, outliers: float = 30.0) -> Any:
    samples = RANDOM.normal(size=(rows, 64)).astype(np.float32)
    samples[:, [3, 17, 40]] *= np.float32(outliers)
    return samples


def plain_error(samples: Any, weight: Any, vector: Any) -> float:
    """Relative output error of the second half with u8 inputs and pair-safe weights, in float64 and by hand."""
    half = len(samples) // 2
    smooth = samples.astype(np.float64) / vector
    low, high = min(0, smooth[:half].min()), max(0, smooth[:half].max())
    step = (high - low) / 255
    zero = round(-low / step)
    inputs = (np.clip(np.rint(smooth[half:] / step) + zero, 0, 255) - zero) * step
    scaled = weight.astype(np.float64) * vector[:, None]
    largest_pair = np.abs(scaled[0::2] + scaled[1::2]).max(axis=0) / 128
    steps = np.maximum(np.abs(scaled).max(axis=0) / 127, largest_pair)
    integers = np.rint(scaled / steps)
    assert unsafe_pairs(integers.astype(np.int8)) == 0
    wanted = samples[half:].astype(np.float64) @ weight
    return float(np.square(wanted - inputs @ (integers * steps)).sum() / np.square(wanted).sum())


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_vector_follows_the_formula_up_to_a_factor(alpha: float) -> None:
    input_max = RANDOM.lognormal(0, 1, 50).astype(np.float32)
    weight_max = RANDOM.lognormal(-3, 1, 50).astype(np.float32)
    vector = smoothing_vector(input_max, weight_max, alpha)
    assert vector.dtype == np.float32
    ratio = vector / (input_max**alpha / weight_max ** (1 - alpha))
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)
    assert np.log(vector).mean() == pytest.approx(0, abs=1e-5)


def test_smoothed_layer_gives_the_same_output() -> None:
    samples, weight = tokens().astype(np.float64), WEIGHTS[0].astype(np.float64)
    vector = smoothing_vector(
        np.abs(samples).max(axis=0).astype(np.float32), np.abs(weight).max(axis=1).astype(np.float32), 0.5
    )
    np.testing.assert_allclose((samples / vector) @ (weight * vector[:, None]), samples @ weight, atol=1e-9)


def test_channels_never_fed_or_never_read_do_no_harm() -> None:
    input_max = np.array([1.0, 0.0, 4.0, 1e-30, 2.0], np.float32)
    weight_max = np.array([0.1, 0.1, 0.2, 0.1, 0.0], np.float32)
    vector = smoothing_vector(input_max, weight_max, 0.5)
    assert np.isfinite(vector).all()
    assert (vector > 0).all()
    assert vector[1] == 1
    smooth = input_max / vector
    assert smooth[4] <= smooth[[0, 2]].max()  # the unread channel does not widen the range
    np.testing.assert_array_equal(smoothing_vector(np.zeros(3, np.float32), np.ones(3, np.float32), 0.5), np.ones(3))
    assert np.isfinite(smoothing_vector(np.ones(3, np.float32), np.zeros(3, np.float32), 0.5)).all()


def test_outliers_are_told_from_ordinary_channels() -> None:
    assert has_outliers(np.abs(tokens()).max(axis=0))
    assert not has_outliers(np.abs(tokens(outliers=1.0)).max(axis=0))
    assert not has_outliers(np.zeros(4, np.float32))


def test_chosen_alpha_has_the_least_error_of_all() -> None:
    samples = tokens()
    input_max = np.abs(samples[:200]).max(axis=0)
    weight_max = np.abs(np.hstack(WEIGHTS)).max(axis=1)
    errors = {
        alpha: sum(plain_error(samples, weight, smoothing_vector(input_max, weight_max, alpha)) for weight in WEIGHTS)
        for alpha in ALPHAS
    }
    chosen = choose_smoothing(samples, WEIGHTS)
    assert chosen is not None
    assert chosen.balance == 1  # both sides are equally long
    assert errors[chosen.alpha] == pytest.approx(min(errors.values()), rel=1e-3)
    assert errors[chosen.alpha] < 0.5 * sum(plain_error(samples, weight, np.ones(64)) for weight in WEIGHTS)


def test_smoothing_stays_off_where_it_gains_nothing() -> None:
    assert choose_smoothing(tokens(outliers=1.0), WEIGHTS) is None
    assert choose_smoothing(tokens(rows=1), WEIGHTS) is None
    assert choose_smoothing(tokens(), WEIGHTS, alphas=()) is None


def test_smoothing_stays_off_where_it_harms() -> None:
    """Outliers with large weights: an α near 0 makes those inputs larger still."""
    samples, weight = tokens(), WEIGHTS[0].copy()
    weight[[3, 17, 40]] *= 40
    vector = smoothing_vector(np.abs(samples[:200]).max(axis=0), np.abs(weight).max(axis=1), 0.0)
    assert plain_error(samples, weight, vector) > plain_error(samples, weight, np.ones(64))
    assert choose_smoothing(samples, [weight], alphas=(0.0,)) is None


def gelu_like(rows: int = 400) -> Any:
    """As GELU gives: small negative values in most channels, large positive ones in some."""
    samples = RANDOM.uniform(-0.17, 0.02, size=(rows, 64))
    samples[:, ::4] = np.maximum(RANDOM.normal(0, 1, size=(rows, 16)) * np.linspace(0.5, 4, 16), -0.17)
    return samples.astype(np.float32)


def test_lopsided_inputs_keep_their_codes_for_the_long_side() -> None:
    samples = gelu_like()
    low, high = samples[:200].min(axis=0), samples[:200].max(axis=0)
    weight_max = np.abs(np.hstack(WEIGHTS)).max(axis=1)

    def error(smoothing: Smoothing) -> float:
        return sum(plain_error(samples, weight, smoothing.vector(low, high, weight_max)) for weight in WEIGHTS)

    chosen = choose_smoothing(samples, WEIGHTS)
    assert chosen is not None
    assert chosen.balance < 1
    assert error(chosen) < min(error(Smoothing(alpha)) for alpha in ALPHAS)
    mirrored = choose_smoothing(-samples, WEIGHTS)
    assert mirrored is not None
    assert mirrored.balance < 1
