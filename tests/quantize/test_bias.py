"""Corrected biases, judged on rows that they did not see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tersely.quant_map import Range
from tersely.quantize.refine import corrected_bias
from tersely.quantize.weights import QuantWeight, dequantize, quantize_weight

RANDOM = np.random.default_rng(11)
MIX = RANDOM.normal(size=(32, 96)) / 6
SHIFT = RANDOM.normal(size=96)
WEIGHT = (RANDOM.standard_t(4, (96, 48)) * 0.05).astype(np.float32)
BIAS = RANDOM.normal(size=48).astype(np.float32)


def rows(tokens: int) -> Any:
    """Inputs with a mean, as norms give them, of which a range cuts the tails off."""
    return (RANDOM.normal(size=(tokens, 32)) @ MIX + SHIFT).astype(np.float32)


@pytest.mark.parametrize("bias", [None, BIAS], ids=["none", "bias"])
@pytest.mark.parametrize("kind", ["channel_wise_abs_max", "abs_max"])
def test_mean_output_error_falls_on_rows_held_out(bias: Any, kind: str) -> None:
    clipped = Range(-2.0, 2.5)
    seen, other = rows(4000), rows(4000)
    quantized = quantize_weight(WEIGHT, kind)
    corrected = corrected_bias(bias, WEIGHT, quantized, seen.mean(axis=0), clipped.fake_quantize(seen).mean(axis=0))
    assert corrected.dtype == np.float32
    before = 0 if bias is None else bias
    wanted = other @ WEIGHT + before
    actual = clipped.fake_quantize(other) @ dequantize(quantized)
    was, now = (np.abs((wanted - actual - shift).mean(axis=0)).mean() for shift in (before, corrected))
    assert now < 0.3 * was
    assert np.square(wanted - actual - corrected).mean() < np.square(wanted - actual - before).mean()


def test_nothing_lost_needs_no_correction() -> None:
    exact = QuantWeight(RANDOM.integers(-60, 61, (96, 48)).astype(np.int8), np.full(48, 0.01, np.float32))
    mean = rows(10).mean(axis=0)
    np.testing.assert_allclose(corrected_bias(BIAS, dequantize(exact), exact, mean, mean), BIAS, rtol=1e-6)
