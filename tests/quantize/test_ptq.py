"""Static INT8 from rows to logits: smoothing, shared weights, constants, broken values, memory, the same twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from reference import Counter, changed, logits, make_features, quantized_output, tokens_of, torch_inputs, torch_logits

from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.quant_map import QuantMap, Range
from tersely.quantize.calibrators import CALIBRATORS
from tersely.quantize.ptq import PtqSettings, ptq
from tersely.quantize.samples import Samples
from tersely.quantize.smooth import choose_smoothing, has_outliers
from tersely.quantize.targets import find_targets
from tersely.quantize.weights import quantize_weight

FEATURES, JUDGE, OTHER = make_features(40, seed=7), make_features(20, seed=8), make_features(30, seed=9)
SAMPLES = Samples(FEATURES, JUDGE, {"n": 40}, 0)
OUTPUT = "bert.encoder.layer.0.output.dense.weight"
QKV = tuple(f"bert.encoder.layer.1.attention.self.{part}.weight" for part in ("query", "key", "value"))


def made(proto: Any, *, attention: bool = False, samples: Samples = SAMPLES, **settings: Any) -> QuantMap:
    found = ptq(
        proto,
        find_targets(proto, attention=("scores", "context") if attention else ()),
        samples,
        PtqSettings(algo_list=("abs_max",), **settings),
    )
    return found["abs_max", "n"]


def logit_error(proto: Any, quant_map: QuantMap) -> float:
    """Mean change of the logits, as a share of their spread over rows."""
    exact, actual = (logits(graph, OTHER) for graph in (proto, write_onnxruntime(proto, quant_map)))
    return float(np.abs(actual - exact).mean() / exact.std(axis=0).mean())


def emulation_error(small: Any, quant_map: QuantMap) -> float:
    """The same between the INT8 graph and torch with the same integers by hand."""
    actual = logits(write_onnxruntime(small.proto, quant_map), OTHER)
    emulated = torch_logits(small.module, OTHER, quant_map.layers)
    return float(np.abs(actual - emulated).mean() / emulated.std(axis=0).mean())


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("smooth", ["off", "auto", 0.5])
def test_int8_graph_answers_like_the_float_one(small: Any, smooth: str | float, attention: bool) -> None:
    proto = small().proto
    found = made(proto, smooth=smooth, attention=attention)
    assert len(found.layers) == 13
    assert len(found.products) == (4 if attention else 0)
    assert 0 < logit_error(proto, found) < 0.15  # random weights of this size make much of small errors
    if not attention:
        assert emulation_error(small(), found) < 0.005


def test_layers_of_one_input_share_range_and_smoothing(small: Any) -> None:
    found = made(small().proto, smooth=0.6)
    first = found.layers[QKV[0]]
    for name in QKV[1:]:
        assert found.layers[name].range == first.range
        np.testing.assert_array_equal(found.layers[name].smooth, first.smooth)


def test_smoothing_off_has_no_vectors(small: Any) -> None:
    layers = made(small().proto, smooth="off").layers
    assert len(layers) == 13
    assert all(layer.smooth is None for layer in layers.values())


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.8])
def test_number_smooths_every_input_by_the_formula(small: Any, alpha: float) -> None:
    proto, module = small()
    found = made(proto, smooth=alpha)
    rows = torch_inputs(module, FEATURES)
    weights = {name: value.numpy() for name, value in module.state_dict().items()}  # [out, in]
    for group in find_targets(proto).groups:
        weight_max = np.max([np.abs(weights[name]).max(axis=0) for name in group.reads], axis=0)
        for name in group.reads:
            tokens, layer = tokens_of(rows, name), found.layers[name]
            assert layer.smooth is not None
            ratio = layer.smooth / (np.abs(tokens).max(axis=0) ** alpha / weight_max ** (1 - alpha))
            np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)  # a common factor changes no rounding
            np.testing.assert_allclose(
                layer.integers * layer.scales, weights[name].T * layer.smooth[:, None], atol=layer.scales.max() * 40
            )
            smoothed = tokens / layer.smooth
            assert layer.range is not None
            assert layer.range.low == pytest.approx(min(0, smoothed.min()), rel=1e-3, abs=1e-4)
            assert layer.range.high == pytest.approx(max(0, smoothed.max()), rel=1e-3, abs=1e-4)


def outliers(proto: Any) -> Any:
    """The norm before layer 1's queries, keys and values made to give three huge channels."""

    def grow(gains: Any) -> None:
        gains[[3, 20, 41]] *= 40

    return changed(proto, bert__encoder__layer__0__output__LayerNorm__weight=grow)


def test_auto_smooths_where_outliers_are_and_where_it_helps(small: Any) -> None:
    proto = outliers(small().proto)
    auto, off = made(proto, smooth="auto"), made(proto, smooth="off")
    smoothed = {name for name, layer in auto.layers.items() if layer.smooth is not None}
    assert set(QKV) <= smoothed
    assert len(smoothed) < len(auto.layers)
    assert logit_error(proto, auto) < 0.7 * logit_error(proto, off)


def test_auto_decides_like_its_rule_on_torch_s_tokens(small: Any) -> None:
    """With fewer tokens than are drawn, the draw is all of them in another order."""
    proto, module = small()
    few = make_features(20, seed=11)
    found = made(proto, smooth="auto", samples=Samples(few, (), {"n": 20}, 0))
    rows = torch_inputs(module, few)
    agree = []
    for group in find_targets(proto).groups:
        names = list(group.reads)
        weights = [module.state_dict()[name].numpy().T for name in names]
        tokens = np.random.default_rng(0).permutation(tokens_of(rows, names[0]))
        if not has_outliers(np.abs(tokens).max(axis=0)):
            assert found.layers[names[0]].smooth is None
        agree.append((choose_smoothing(tokens, weights) is None) == (found.layers[names[0]].smooth is None))
    assert np.mean(agree) > 0.7  # the halves of another order may differ at the border


@pytest.mark.parametrize("smooth", ["off", 0.5])
def test_steps_of_weights_follow_the_inputs_that_they_see(small: Any, smooth: str | float) -> None:
    """With fewer tokens than are drawn, the moments are those of all that torch shows."""
    proto, module = small()
    few = make_features(20, seed=11)
    found = made(proto, smooth=smooth, samples=Samples(few, (), {"n": 20}, 0))
    rows = torch_inputs(module, few)
    for name, layer in found.layers.items():
        divisor = np.ones(len(layer.integers), np.float32) if layer.smooth is None else layer.smooth
        weight, tokens = module.state_dict()[name].numpy().T * divisor[:, None], tokens_of(rows, name) / divisor
        expected = quantize_weight(weight, moments=np.square(tokens).mean(axis=0))
        assert np.mean(layer.scales != expected.scales) < 0.05  # of two steps as good either may be taken
        assert np.mean(layer.integers != expected.integers) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("smooth", ["auto", 0.5])
def test_shared_weights_have_no_smoothing_and_a_range_for_all_their_uses(small: Any, smooth: str | float) -> None:
    proto, module = small("albert")
    found = made(proto, smooth=smooth)
    rows = torch_inputs(module, FEATURES)
    shared = [name for name in found.layers if "albert_layers" in name]
    assert len(shared) == 6
    for name in shared:
        layer, uses = found.layers[name], [tokens_of(rows, name, use) for use in (0, 1)]
        assert layer.smooth is None
        assert layer.range is not None
        assert layer.range.low == pytest.approx(min(0, *(use.min() for use in uses)), abs=1e-3)
        assert layer.range.high == pytest.approx(max(0, *(use.max() for use in uses)), abs=1e-3)
    if smooth == 0.5:
        assert all(layer.smooth is not None for name, layer in found.layers.items() if name not in shared)
    assert emulation_error(small("albert"), found) < 0.005
    assert logit_error(proto, found) < 0.3


@pytest.mark.slow
def test_shared_weights_are_refined_for_all_their_uses(small: Any) -> None:
    proto, module = small("albert")
    plain, refined = made(proto, smooth="off"), made(proto, smooth="off", adaround=True, bias_correction=True)
    rows = torch_inputs(module, OTHER)
    state = {name: value.numpy().astype(np.float64) for name, value in module.state_dict().items()}
    ratios = []
    for name in [name for name in plain.layers if "albert_layers" in name]:
        x, bias = tokens_of(rows, name).astype(np.float64), state[name.replace(".weight", ".bias")]
        wanted = x @ state[name].T + bias
        before, after = (
            np.square(quantized_output(quant_map.layers[name], x, bias) - wanted).mean()
            for quant_map in (plain, refined)
        )
        ratios.append(after / before)
    assert np.mean([ratio < 1 for ratio in ratios]) > 0.8


@pytest.mark.slow
def test_weight_that_also_reads_a_constant_has_a_range_for_both(small: Any) -> None:
    """DeBERTa: queries and keys of the words, and of the table of relative positions that is the same for all rows."""
    proto, module = small("deberta_v2")
    settings = PtqSettings(algo_list=("abs_max", "mse", "KL"), smooth=0.5)
    maps = ptq(proto, find_targets(proto), SAMPLES, settings)
    rows = torch_inputs(module, FEATURES)
    twice = [name for name in rows[0] if len(rows[0][name]) == 2]
    assert len(twice) == 4
    for (algo, _), found in maps.items():
        assert set(twice) <= set(found.layers)
        assert "constant" not in found.left_float.values()
        for name in twice:
            layer, (words, table) = found.layers[name], (tokens_of(rows, name, use) for use in (0, 1))
            assert layer.smooth is None
            assert layer.range is not None
            assert layer.range.low <= table.min() + 1e-4  # nothing of a constant is clipped
            assert layer.range.high >= table.max() - 1e-4
            if algo == "abs_max":
                assert layer.range.low == pytest.approx(min(words.min(), table.min()), abs=1e-3)
                assert layer.range.high == pytest.approx(max(words.max(), table.max()), abs=1e-3)
            value = name.replace("query", "value").replace("key", "value")
            assert found.layers[value].range == layer.range  # one quantizer for all three
        assert emulation_error(small("deberta_v2"), found) < 0.005
        assert 0 < logit_error(proto, found) < 0.15
    exact = maps["abs_max", "n"].layers["deberta.encoder.layer.0.attention.output.dense.weight"]
    assert exact.smooth is not None


@pytest.mark.slow
def test_constants_do_no_harm_to_attention_and_refinement(small: Any) -> None:
    proto = small("deberta_v2").proto
    plain = made(proto, attention=True, smooth="off")
    assert len(plain.products) == 8
    assert logit_error(proto, plain) < 0.2
    refined = made(proto, smooth="off", adaround=True, bias_correction=True)
    assert emulation_error(small("deberta_v2"), refined) < 0.005
    assert logit_error(proto, refined) < 0.15


def test_values_that_are_not_finite_leave_their_layers_float(small: Any) -> None:
    proto = changed(
        small().proto, bert__encoder__layer__1__intermediate__dense__bias=lambda bias: bias.__setitem__(5, np.nan)
    )
    found = made(proto, smooth=0.5, adaround=True, bias_correction=True, attention=True)
    reasons = {name for name, reason in found.left_float.items() if reason == "not_finite"}
    assert reasons == {"bert.encoder.layer.1.output.dense.weight", "bert.pooler.dense.weight"}
    assert len(found.layers) == 11


def test_attention_that_is_not_finite_stays_float(small: Any) -> None:
    proto = changed(
        small().proto, bert__encoder__layer__0__attention__self__key__bias=lambda bias: bias.__setitem__(5, np.inf)
    )
    found = made(proto, attention=True)
    assert found.products == {}
    assert {found.left_float[name] for name in ("matmul", "matmul_1", "matmul_2", "matmul_3")} == {"not_finite"}


def test_no_rows_leave_everything_float(small: Any) -> None:
    proto = small().proto
    found = made(proto, samples=Samples([], [], {"n": 0}, 0), adaround=True, bias_correction=True)
    assert not found.layers
    assert list(found.left_float.values()).count("unseen") == 13


def test_grid_costs_two_passes_however_large(small: Any) -> None:
    counter = Counter()
    proto = small().proto
    grid = Samples(FEATURES, JUDGE, {"4_1": 4, "4_4": 16, "4_None": 40}, 0)
    maps = ptq(proto, find_targets(proto), grid, PtqSettings(algo_list=tuple(CALIBRATORS)), progress=counter)
    assert counter.counts == {"look": 40, "calibrate": 40}
    assert len(maps) == 21


@pytest.mark.parametrize("settings", [{}, {"bias_correction": True, "smooth": 0.5}])
def test_same_seed_gives_the_same_bytes(small: Any, tmp_path: Path, settings: Any) -> None:
    proto = small().proto
    for name in ("one.npz", "two.npz"):
        made(proto, **settings).save(tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.parametrize(("classes", "valid"), [("all", ("all",)), ("vnni", ("amx", "vnni"))])
def test_map_says_where_its_integers_are_right(small: Any, classes: str, valid: tuple[str, ...]) -> None:
    assert made(small().proto, cpu_classes=classes).cpu_classes == valid


def test_input_that_is_a_side_of_a_product_too_is_not_smoothed() -> None:
    """x·xᵀ·v by hand: what smoothing divides is divided for the weight alone, and the range must be the whole one."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (int64[n, l] input_ids) => (float[n, l, 64] y) {'
        "x = Gather (table, input_ids) t = Transpose <perm = [0, 2, 1]> (x) s = MatMul (x, t) p = Softmax (s) "
        "v = MatMul (x, w) y = MatMul (p, v) }"
    )
    random = np.random.default_rng(1)
    for name, shape in (("table", (140, 64)), ("w", (64, 64))):
        array = random.normal(size=shape).astype(np.float32) * (np.arange(shape[1]) + 1 if name == "table" else 1)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    found = made(proto, attention=True, smooth=0.5)
    product = found.products["s"]
    assert found.layers["w"].smooth is None
    assert found.layers["w"].range == product.left == product.right
    alone = made(proto, smooth=0.5)
    assert alone.layers["w"].smooth is not None
    assert isinstance(alone.layers["w"].range, Range)


MEMORY = """
import json, sys
import numpy as np, onnx
from reference import make_features
from tersely.quantize.ptq import PtqSettings, ptq
from tersely.quantize.samples import Samples
from tersely.quantize.targets import find_targets
from tersely.quantize.weights import quantize_weight

proto, count = onnx.load(sys.argv[1]), int(sys.argv[2])
features = make_features(count, shortest=64, longest=64)
ptq(proto, find_targets(proto), Samples(features, features[:32], {"n": count}, 0), PtqSettings(bias_correction=True))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps(int(status["VmHWM"].split()[0])))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory where Linux shows it")
def test_memory_does_not_grow_with_the_rows(small: Any, tmp_path: Path) -> None:
    onnx.save(small().proto, tmp_path / "model.onnx")

    def peak(count: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(tmp_path / "model.onnx"), str(count)],
            capture_output=True, text=True, check=True, cwd=Path(__file__).parent,
        )  # fmt: skip
        return int(json.loads(done.stdout))

    few, many = peak(64), peak(512)
    kept = (512 - 64) * 64 * (7 * 64 + 2 * 128) * 4 / 1024  # what all inputs of layers of all rows would take
    assert kept > 0.3 * few  # else the test could not fail
    assert many < 1.15 * few
