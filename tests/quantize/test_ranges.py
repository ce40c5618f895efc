"""Ranges of a whole grid from one pass, each what the calibrator makes of torch's activations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reference import Counter, changed, make_features, tokens_of, torch_inputs

from tersely.quant_map import Range
from tersely.quantize.calibrators import CALIBRATORS, find, range_of
from tersely.quantize.ptq import PtqSettings, settle_ranges
from tersely.quantize.samples import Samples
from tersely.quantize.statistics import Statistics
from tersely.quantize.targets import find_targets

FEATURES = make_features(32, seed=3)
SETS = {"4_1": 4, "4_2": 8, "4_None": 32}
ABS_MAX = PtqSettings(algo_list=("abs_max",))


def samples(sets: Any = SETS, features: Any = FEATURES, **options: Any) -> Samples:
    return Samples(features, (), sets, 0, **options)


def statistics(parts: list[np.ndarray]) -> Statistics:
    found = Statistics()
    found.observe(np.concatenate(parts), np.array([len(part) for part in parts]))
    return found


def test_whole_grid_comes_from_one_pass(small: Any) -> None:
    proto, module = small()
    targets = find_targets(proto)
    counter = Counter()
    found = settle_ranges(proto, targets, samples(), PtqSettings(algo_list=tuple(CALIBRATORS)), {}, progress=counter)
    assert counter.counts == {"calibrate": len(FEATURES)}
    assert list(found) == [(algo, name) for name in SETS for algo in CALIBRATORS]
    rows = torch_inputs(module, FEATURES)
    for (algo, name), ranges in found.items():
        for group in targets.groups:
            weight = next(iter(group.reads))
            expected = statistics([part for row in rows[: SETS[name]] for part in row[weight]])
            wanted, got = range_of(expected, find(algo).settle(expected)), ranges[group.values]
            assert isinstance(got, Range)
            # The searches may take the neighbouring threshold of a grid where the engines differ by 1e-6.
            tolerance = 0.025 * (wanted.high - wanted.low) if algo in ("mse", "emd", "KL") else 1e-4
            assert got.low == pytest.approx(wanted.low, abs=tolerance)
            assert got.high == pytest.approx(wanted.high, abs=tolerance)


def test_products_of_attention_have_the_ranges_of_their_sides(small: Any) -> None:
    """Of the first layer: q and k from torch's own linear layers, P between 0 and 1."""
    proto, module = small()
    targets = find_targets(proto, attention=("scores", "context"))
    ranges = settle_ranges(proto, targets, samples({"n": 32}), ABS_MAX, {})["abs_max", "n"]
    state = {name: value.numpy() for name, value in module.state_dict().items()}
    name = "bert.encoder.layer.0.attention.self"
    x = tokens_of(torch_inputs(module, FEATURES), f"{name}.query.weight")
    query, key, value = (
        x @ state[f"{name}.{part}.weight"].T + state[f"{name}.{part}.bias"] for part in ("query", "key", "value")
    )
    scores, context = targets.products[:2]

    def covers(side: str, array: np.ndarray, factor: float = 1.0) -> None:
        found = ranges[side,]
        assert isinstance(found, Range)
        assert found.low == pytest.approx(min(0, array.min() * factor), rel=1e-3, abs=1e-4)
        assert found.high == pytest.approx(max(0, array.max() * factor), rel=1e-3, abs=1e-4)

    # The exporter may put the factor 1/√16 on either side, or half of it on both.
    factors = [ranges[side,].high / max(0, array.max()) for side, array in ((scores.left, query), (scores.right, key))]
    assert np.prod(factors) == pytest.approx(0.25, rel=1e-3) or np.prod(factors) == pytest.approx(1, rel=1e-3)
    covers(scores.left, query, factors[0])
    covers(scores.right, key, factors[1])
    covers(context.right, value)
    attention = ranges[context.left,]
    assert isinstance(attention, Range)
    assert attention.low == 0
    assert 0.5 < attention.high <= 1.0001


def test_moving_average_is_that_of_the_reference(small: Any) -> None:
    """accum = r·accum + x and state = r·state + 1 over batches of 3, 3 and 2 rows, by hand from torch's maxima."""
    proto, module = small()
    targets = find_targets(proto)
    rows = torch_inputs(module, FEATURES)
    batches = {"3_3": [3, 6, 8], "2_1": [2]}
    settings = replace(ABS_MAX, moving_rate=0.8)
    found = settle_ranges(proto, targets, samples({"3_3": 8, "2_1": 2}, batches=batches), settings, {})
    for group in targets.groups:
        weight = next(iter(group.reads))
        a, b, c = (
            max(np.abs(part).max() for row in rows[start:end] for part in row[weight])
            for start, end in ((0, 3), (3, 6), (6, 8))
        )
        threshold = (0.8 * (0.8 * a + b) + c) / (0.8 * (0.8 + 1) + 1)
        seen = tokens_of(rows[:8], weight)
        got = found["abs_max", "3_3"][group.values]
        assert isinstance(got, Range)
        assert got.high == pytest.approx(min(seen.max(), threshold), abs=1e-4)
        assert got.low == pytest.approx(max(seen.min(), -threshold), abs=1e-4)
        averaged = found["abs_max", "2_1"][group.values]
        assert isinstance(averaged, Range)
        assert averaged.high == pytest.approx(tokens_of(rows[:2], weight).max(), abs=1e-4)


def test_moving_average_of_one_batch_is_the_plain_range(small: Any) -> None:
    proto = small().proto
    targets = find_targets(proto)
    settings = PtqSettings(algo_list=("mse", "avg"))
    plain = settle_ranges(proto, targets, samples({"n": 20}), settings, {})
    moving = settle_ranges(proto, targets, samples({"n": 20}, batches={"n": [20]}), settings, {})
    assert moving == plain


def test_divided_values_have_divided_ranges(small: Any) -> None:
    proto = small().proto
    targets = find_targets(proto)
    group = targets.groups[3]
    divisors = {group.name: np.full(targets.weights[next(iter(group.reads))].shape[0], 4, np.float32)}
    plain, divided = (
        settle_ranges(proto, targets, samples({"n": 8}), ABS_MAX, dividing)["abs_max", "n"]
        for dividing in ({}, divisors)
    )
    for values, range_ in plain.items():
        factor = 4 if values == group.values else 1
        assert (divided[values].low * factor, divided[values].high * factor) == (range_.low, range_.high)


def test_values_that_are_not_finite_have_no_range(small: Any) -> None:
    """An infinite bias: the gelu after it, and all that follows, is not finite; what comes before is."""
    proto = small().proto
    spoiled = changed(proto, bert__encoder__layer__1__intermediate__dense__bias=lambda bias: bias.fill(np.inf))
    targets = find_targets(spoiled)
    ranges = settle_ranges(spoiled, targets, samples({"n": 8}), ABS_MAX, {})["abs_max", "n"]
    reasons = {name: ranges[group.values] for group in targets.groups for name in group.reads}
    bad = {name for name, found in reasons.items() if found == "not_finite"}
    assert bad == {"bert.encoder.layer.1.output.dense.weight", "bert.pooler.dense.weight"}
    assert all(isinstance(found, Range) for name, found in reasons.items() if name not in bad)


def test_no_rows_leave_everything_unseen(small: Any) -> None:
    proto = small().proto
    found = settle_ranges(proto, find_targets(proto), samples({"n": 0}, []), ABS_MAX, {})
    assert set(found["abs_max", "n"].values()) == {"unseen"}
