"""Learned rounding: judged on rows held out, and on a small layer against every choice there is."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest

import tersely.quantize.adaround as adaround_module
from tersely.quant_map import Range
from tersely.quantize.adaround import adaround, better_rounding, channel_errors
from tersely.quantize.weights import QuantWeight, dequantize, quantize_weight, unsafe_pairs

RANDOM = np.random.default_rng(17)
INPUTS, OUTPUTS = 96, 300
MIX = RANDOM.normal(size=(24, INPUTS))
WEIGHT = (RANDOM.standard_t(4, (INPUTS, OUTPUTS)) * 0.05).astype(np.float32)


def rows(tokens: int, mix: Any = MIX) -> tuple[Any, Any]:
    """Inputs that go with each other, as real ones do, and the same as u8 codes stand for them."""
    factors, inputs = mix.shape
    plain = RANDOM.normal(size=(tokens, factors)) @ mix + 0.5 * RANDOM.normal(size=(tokens, inputs)) + 0.3
    plain = plain.astype(np.float32)
    return plain, Range(float(plain.min()), float(plain.max())).fake_quantize(plain)


def moments(plain: Any, quantized: Any) -> dict[str, Any]:
    x, y = plain.astype(np.float64), quantized.astype(np.float64)
    return {"second": y.T @ y / len(x), "cross": y.T @ x / len(x), "plain": x.T @ x / len(x)}


ROWS, OTHER_ROWS = rows(3000), rows(3000)
LEARNT, HELD_OUT = moments(*ROWS), moments(*OTHER_ROWS)
NEAREST = quantize_weight(WEIGHT)


def held_out_error(integers: Any, quantized: QuantWeight = NEAREST) -> float:
    return reconstruction_error(WEIGHT, integers, quantized.scales, **HELD_OUT)


def reconstruction_error(weight: Any, integers: Any, scales: Any, **moments: Any) -> float:
    return float(channel_errors(weight, integers, scales, moments).mean())


def test_error_from_moments_is_the_error_of_the_rows() -> None:
    plain, quantized = (part.astype(np.float64) for part in OTHER_ROWS)
    direct = np.square(plain @ WEIGHT - quantized @ dequantize(NEAREST)).mean()
    assert held_out_error(NEAREST.integers) == pytest.approx(direct, rel=1e-5)
    rounded = {name: moment.astype(np.float32) for name, moment in HELD_OUT.items()}
    single = reconstruction_error(WEIGHT, NEAREST.integers, NEAREST.scales, **rounded)
    assert single == pytest.approx(direct, rel=1e-2)


@pytest.mark.parametrize("kind", ["channel_wise_abs_max", "abs_max"])
@pytest.mark.parametrize("cpu_classes", ["all", "vnni"])
def test_held_out_error_falls_clearly(kind: str, cpu_classes: str) -> None:
    nearest = quantize_weight(WEIGHT, kind, cpu_classes=cpu_classes)
    learned = adaround(WEIGHT, nearest, LEARNT["second"], LEARNT["cross"], cpu_classes=cpu_classes, steps=100)
    floor = np.square(OTHER_ROWS[0] @ WEIGHT - OTHER_ROWS[1] @ WEIGHT).mean()  # of the float weight on codes
    before, after = held_out_error(nearest.integers, nearest), held_out_error(learned, nearest)
    assert after - floor < 0.6 * (before - floor)
    assert learned.dtype == np.int8
    assert np.abs(learned.astype(int)).max() <= 127
    if cpu_classes == "all":
        assert unsafe_pairs(learned) == 0


def test_learning_alone_lowers_the_error_and_more_steps_lower_it_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaround_module, "_SWEEPS", 0)
    weight, nearest = WEIGHT[:, :64], QuantWeight(NEAREST.integers[:, :64], NEAREST.scales[:64])
    errors = [
        reconstruction_error(
            weight,
            adaround(weight, nearest, LEARNT["second"], LEARNT["cross"], steps=steps),
            nearest.scales,
            **HELD_OUT,
        )
        for steps in (0, 60, 300)
    ]
    assert errors[0] == pytest.approx(reconstruction_error(weight, nearest.integers, nearest.scales, **HELD_OUT), 1e-3)
    assert errors[1] < 0.9 * errors[0]
    assert errors[2] < 0.97 * errors[1]


def test_small_layer_comes_near_the_best_of_all_choices() -> None:
    mix = RANDOM.normal(size=(3, 10)) * 2
    weight = (RANDOM.normal(size=(10, 12)) * 0.1).astype(np.float32)
    nearest = QuantWeight(np.rint(weight / 0.05).astype(np.int8), np.full(12, 0.05, np.float32))
    known = moments(*rows(4000, mix))
    learned = adaround(weight, nearest, known["second"], known["cross"], cpu_classes="vnni")

    # The error that is learned: with the ridge that pulls towards nearest.
    ridge = np.trace(known["second"]) / 10 * np.eye(10)
    ridged = {name: moment + ridge for name, moment in known.items()}
    below = np.floor(weight / 0.05).astype(int)
    choices = np.array(list(itertools.product((0, 1), repeat=10)))
    total = {"best": 0.0, "learned": 0.0, "nearest": 0.0}
    for column in range(12):
        single = weight[:, [column]]
        all_errors = [
            reconstruction_error(single, (below[:, column] + choice)[:, None], nearest.scales[:1], **ridged)
            for choice in choices
        ]
        total["best"] += min(all_errors)
        for name, integers in (("learned", learned), ("nearest", nearest.integers)):
            total[name] += reconstruction_error(single, integers[:, [column]], nearest.scales[:1], **ridged)
    assert total["best"] <= total["learned"]
    assert total["learned"] - total["best"] < 0.15 * (total["nearest"] - total["best"])


def test_each_weight_takes_the_integer_below_or_above() -> None:
    learned = adaround(WEIGHT, NEAREST, LEARNT["second"], LEARNT["cross"], steps=20)
    assert (np.abs(learned - WEIGHT / NEAREST.scales) < 1.0001).all()
    assert (learned != NEAREST.integers).mean() > 0.05


def test_what_was_clipped_stays_and_so_do_pairs_at_the_limit() -> None:
    weight = WEIGHT.copy()
    weight[:2] = 0.9  # far above all others: clipped, since its input counts little
    importance = np.ones(INPUTS, np.float32)
    importance[:2] = 0.01
    clipped = quantize_weight(weight, moments=importance)
    assert (np.rint(weight[:2] / clipped.scales).sum(axis=0) > 128).any()
    learned = adaround(weight, clipped, LEARNT["second"], LEARNT["cross"], steps=20)
    assert unsafe_pairs(learned) == 0
    np.testing.assert_array_equal(learned[:2], clipped.integers[:2])


def test_same_moments_give_the_same_integers_and_columns_do_not_mix() -> None:
    together = adaround(WEIGHT, NEAREST, LEARNT["second"], LEARNT["cross"], steps=20)
    part = QuantWeight(NEAREST.integers[:, 250:], NEAREST.scales[250:])
    alone = adaround(WEIGHT[:, 250:], part, LEARNT["second"], LEARNT["cross"], steps=20)
    # BLAS may sum in another order for another width, so that a weight on the edge may fall to the other side.
    assert (alone == together[:, 250:]).mean() > 0.999
    np.testing.assert_array_equal(adaround(WEIGHT, NEAREST, LEARNT["second"], LEARNT["cross"], steps=20), together)


@pytest.mark.parametrize("size", [0.0, np.nan])
def test_without_inputs_nothing_changes(size: float) -> None:
    nothing = np.full((INPUTS, INPUTS), size)
    np.testing.assert_array_equal(adaround(WEIGHT, NEAREST, nothing, nothing), NEAREST.integers)


def test_channels_are_kept_only_where_rows_held_out_agree() -> None:
    # Held-out inputs that do not go with each other: there nothing beats nearest rounding, save in a few channels.
    other = moments(*(RANDOM.normal(size=(20000, INPUTS)).astype(np.float32),) * 2)
    learned = adaround(WEIGHT, NEAREST, LEARNT["second"], LEARNT["cross"])
    kept = better_rounding(WEIGHT, NEAREST, LEARNT, other)
    errors = [
        reconstruction_error(WEIGHT, integers, NEAREST.scales, **other)
        for integers in (learned, kept.integers, NEAREST.integers)
    ]
    assert errors[0] > errors[2]
    assert errors[1] <= errors[2]
    assert (kept.integers == NEAREST.integers).all(axis=0).mean() > 0.9


def test_better_rounding_is_at_least_as_good_as_both() -> None:
    better = better_rounding(WEIGHT, NEAREST, LEARNT, HELD_OUT)
    assert better.scales is NEAREST.scales
    assert better.integers.dtype == np.int8
    assert unsafe_pairs(better.integers) == 0
    assert held_out_error(better.integers) < 0.9 * held_out_error(NEAREST.integers)
    learned = adaround(WEIGHT, NEAREST, LEARNT["second"], LEARNT["cross"], steps=100)
    assert held_out_error(better.integers) <= held_out_error(learned) * (1 + 1e-9)


@pytest.mark.slow
def test_a_layer_of_a_small_encoder_takes_less_than_ten_seconds() -> None:
    mix = RANDOM.normal(size=(100, 384))
    weight = (RANDOM.normal(size=(384, 1536)) * 0.05).astype(np.float32)
    known = moments(*rows(2000, mix))
    start = time.process_time()
    adaround(weight, quantize_weight(weight), known["second"], known["cross"])
    assert time.process_time() - start < 10
