"""What AdaRound and bias correction learn holds on rows that they have not seen; torch gives the layers' inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from reference import Counter, make_features, quantized_output, tokens_of, torch_inputs

from tersely.quant_map import QuantMap
from tersely.quantize.ptq import PtqSettings, ptq
from tersely.quantize.refine import refine
from tersely.quantize.samples import Samples
from tersely.quantize.targets import find_targets
from tersely.quantize.weights import unsafe_pairs

LEARN, JUDGE, OTHER = make_features(48, seed=4), make_features(48, seed=5), make_features(60, seed=6)
SAMPLES = Samples(LEARN, JUDGE, {"n": 48}, 0)
KEY = ("mse", "n")


def made(small: Any, **settings: Any) -> QuantMap:
    proto = small().proto
    return ptq(proto, find_targets(proto), SAMPLES, PtqSettings(algo_list=("mse",), **settings))[KEY]


@pytest.fixture(scope="module")
def plain(small: Any) -> QuantMap:
    return made(small)


@pytest.fixture(scope="module")
def rounded(small: Any) -> QuantMap:
    return made(small, adaround=True)


@pytest.fixture(scope="module")
def shifted(small: Any) -> QuantMap:
    return made(small, bias_correction=True)


def errors(small: Any, quant_map: QuantMap) -> dict[str, np.ndarray]:
    """The error of each layer's output on the other rows, [tokens, out]."""
    rows = torch_inputs(small().module, OTHER)
    state = {name: value.numpy().astype(np.float64) for name, value in small().module.state_dict().items()}
    found = {}
    for name, layer in quant_map.layers.items():
        x, bias = tokens_of(rows, name).astype(np.float64), state[name.replace(".weight", ".bias")]
        found[name] = quantized_output(layer, x, bias) - (x @ state[name].T + bias)
    return found


def test_adaround_lowers_the_error_of_layers_on_other_rows(small: Any, plain: QuantMap, rounded: QuantMap) -> None:
    before, after = errors(small, plain), errors(small, rounded)
    ratios = {name: np.square(after[name]).mean() / np.square(before[name]).mean() for name in before}
    assert np.mean([ratio < 1 for ratio in ratios.values()]) > 0.8
    assert np.mean(list(ratios.values())) < 0.98
    assert max(ratios.values()) < 1.05


def test_adaround_changes_roundings_and_nothing_else(plain: QuantMap, rounded: QuantMap) -> None:
    moved = 0
    for name, layer in rounded.layers.items():
        difference = np.abs(layer.integers.astype(int) - plain.layers[name].integers)
        assert difference.max() <= 1
        assert unsafe_pairs(layer.integers) == 0
        moved += int(difference.sum())
        np.testing.assert_array_equal(layer.scales, plain.layers[name].scales)
        assert (layer.range, layer.bias) == (plain.layers[name].range, None)
    assert moved > 0


def test_bias_correction_takes_the_mean_error_off(small: Any, plain: QuantMap, shifted: QuantMap) -> None:
    before, after = errors(small, plain), errors(small, shifted)
    changed = [name for name, layer in shifted.layers.items() if layer.bias is not None]
    assert len(changed) > len(plain.layers) / 2
    ratios = [np.abs(after[name].mean(axis=0)).sum() / np.abs(before[name].mean(axis=0)).sum() for name in changed]
    assert np.mean([ratio < 1 for ratio in ratios]) > 0.8
    assert np.mean(ratios) < 0.9
    for name, layer in shifted.layers.items():
        np.testing.assert_array_equal(layer.integers, plain.layers[name].integers)


def test_both_together_correct_what_the_rounding_left(small: Any, shifted: QuantMap, rounded: QuantMap) -> None:
    both = made(small, adaround=True, bias_correction=True)
    for name, layer in both.layers.items():
        np.testing.assert_array_equal(layer.integers, rounded.layers[name].integers)
        if layer.bias is not None and shifted.layers[name].bias is not None:
            assert not np.array_equal(layer.bias, shifted.layers[name].bias)
    before, after = errors(small, rounded), errors(small, both)
    total = [sum(np.abs(error.mean(axis=0)).sum() for error in found.values()) for found in (before, after)]
    assert total[1] < total[0]


def test_bias_is_what_makes_the_means_equal_on_the_rows_learnt(small: Any, shifted: QuantMap) -> None:
    rows = torch_inputs(small().module, LEARN)
    state = {name: value.numpy().astype(np.float64) for name, value in small().module.state_dict().items()}
    for name, layer in shifted.layers.items():
        if layer.bias is not None:
            x = tokens_of(rows, name).astype(np.float64)
            bias = state[name.replace(".weight", ".bias")]
            error = quantized_output(layer, x, bias).mean(axis=0) - (x @ state[name].T + bias).mean(axis=0)
            assert np.abs(error).max() < 2e-3  # values between two codes fall to either side in torch and the engine


def test_candidates_share_the_passes_and_equal_ranges_the_work(small: Any) -> None:
    proto = small().proto
    targets = find_targets(proto)
    settings = PtqSettings(algo_list=("abs_max", "min_max", "mse"))
    sets = Samples(LEARN, JUDGE, {"a": 10, "b": 48}, 0)
    maps = ptq(proto, targets, sets, settings)
    correcting = replace(settings, bias_correction=True)
    counter = Counter()
    refined = refine(proto, targets, sets, maps, correcting, progress=counter)
    assert counter.counts["moments"] == len(LEARN) + len(JUDGE)
    distinct = {(name, layer.range) for quant_map in maps.values() for name, layer in quant_map.layers.items()}
    assert counter.counts["refine"] == len(distinct) < len(maps) * 13
    for key, quant_map in refined.items():
        alone = refine(proto, targets, sets, {key: maps[key]}, correcting)[key]
        assert quant_map.layers.keys() == maps[key].layers.keys()
        for name, layer in quant_map.layers.items():
            assert layer.range == maps[key].layers[name].range
            np.testing.assert_array_equal(layer.bias, alone.layers[name].bias)


def test_rows_that_calibrate_judge_where_there_are_no_others(small: Any) -> None:
    proto = small().proto
    alone = replace(SAMPLES, judging=())
    settings = PtqSettings(algo_list=("mse",), bias_correction=True)
    found = ptq(proto, find_targets(proto), alone, settings)[KEY]
    assert len(found.layers) == 13
    assert all(layer.bias is not None for layer in found.layers.values())  # on them it always helps


@pytest.mark.parametrize("second", ["Identity (m)", "Add (m, c)", "Add (m, b)"])
def test_weight_used_with_two_biases_keeps_them(second: str) -> None:
    """One weight, twice: the second time without a bias, with another, or with the same."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (int64[n, l] input_ids) => (float[n, l, 64] logits) {'
        "x = Gather (table, input_ids) h = MatMul (x, w) i = Add (h, b) j = Tanh (i) m = MatMul (j, w) "
        f"k = {second} u = Tanh (k) logits = MatMul (u, v) }}"
    )
    random = np.random.default_rng(2)
    for name, shape in {"table": (140, 64), "w": (64, 64), "v": (64, 64), "b": (64,), "c": (64,)}.items():
        array = random.normal(size=shape).astype(np.float32) * 0.3
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    settings = PtqSettings(algo_list=("mse",), bias_correction=True)
    found = ptq(proto, find_targets(proto), replace(SAMPLES, judging=()), settings)[KEY]
    assert (found.layers["w"].bias is None) == (second != "Add (m, b)")
    assert found.layers["v"].bias is not None  # one was put where there was none


def test_nothing_to_refine_runs_nothing(small: Any) -> None:
    proto = small().proto
    counter = Counter()
    empty = {KEY: QuantMap()}
    settings = PtqSettings(adaround=True, bias_correction=True)
    found = refine(proto, find_targets(proto), SAMPLES, empty, settings, progress=counter)
    assert found == empty
    assert counter.counts == {}
