"""The harm of each layer alone: what a graph with that one layer in INT8 really does to the logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reference import Counter, changed, logits, make_features

from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.quantize.ptq import PtqSettings, ptq
from tersely.quantize.samples import Samples
from tersely.quantize.sensitivity import sensitivity, too_harmful
from tersely.quantize.targets import find_targets

CALIBRATION, JUDGE = make_features(24, seed=20), make_features(16, seed=21)
SPOILED = "bert.encoder.layer.0.intermediate.dense.weight"


def made(proto: Any, **settings: Any) -> Any:
    samples = Samples(CALIBRATION, JUDGE, {"n": 24}, 0)
    found = ptq(proto, find_targets(proto), samples, PtqSettings(algo_list=("abs_max",), smooth="off", **settings))
    return found["abs_max", "n"]


@pytest.mark.parametrize("axis", [-1, None])
def test_harm_is_that_of_brute_force(small: Any, axis: int | None) -> None:
    proto = small().proto
    quant_map = made(proto)
    counter = Counter()
    found = sensitivity(proto, quant_map, JUDGE, 0, axis, progress=counter)
    assert counter.counts == {"sensitivity": len(quant_map.layers)}
    exact = logits(proto, JUDGE)
    for name, layer in quant_map.layers.items():
        change = logits(write_onnxruntime(proto, replace(quant_map, layers={name: layer})), JUDGE) - exact
        if axis is not None:
            change -= change.mean(axis=axis, keepdims=True)
        assert found[name] == pytest.approx(np.abs(change).mean(), rel=0.02, abs=1e-5)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert found.keys() == quant_map.layers.keys()


def test_spoiled_layer_is_the_most_harmful(small: Any) -> None:
    """One huge weight, and one step for the whole layer: all its other weights round to nothing."""
    proto = changed(
        small().proto,
        bert__encoder__layer__0__intermediate__dense__weight=lambda weight: weight.__setitem__((3, 7), 300),
    )
    found = sensitivity(proto, made(proto, weight_quantize_type="abs_max"), JUDGE, 0, -1)
    assert next(iter(found)) == SPOILED
    assert too_harmful(found) == [SPOILED]


def test_tables_and_products_stay_float_meanwhile(small: Any) -> None:
    from tersely.quantize.weights import quantize_tables

    proto = small().proto
    quant_map = made(proto)
    more = replace(quant_map, tables=quantize_tables(proto)[0])
    assert sensitivity(proto, more, JUDGE[:4], 0, -1) == sensitivity(proto, quant_map, JUDGE[:4], 0, -1)


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        ({}, []),
        ({"a": 1.0}, []),  # alone it is all there is
        ({"a": 0.0, "b": 0.0}, []),
        ({"a": 3.0, "b": 2.0, "c": 2.0}, []),
        ({"a": 9.0, "b": 1.0, "c": 1.0}, ["a"]),
        ({"a": 9.0, "b": 8.0, "c": 1.0, "d": 1.0, "e": 1.0}, ["a", "b"]),
        # Far above the median, but so are others: to leave it float would change little.
        ({**{f"large{number}": 9.0 for number in range(9)}, **{f"small{number}": 1.0 for number in range(10)}}, []),
    ],
)
def test_layers_that_stand_out_are_too_harmful(harm: dict[str, float], expected: list[str]) -> None:
    assert too_harmful(harm) == expected


def test_what_is_too_harmful_does_not_depend_on_the_unit() -> None:
    harm = dict(zip("abcdefgh", np.random.default_rng(0).lognormal(0, 2, 8).tolist(), strict=True))
    assert too_harmful(harm) == too_harmful({name: 1000 * value for name, value in harm.items()}) != []
