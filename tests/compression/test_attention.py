"""Products of attention under `auto`: which graph has them as integers, that no other has, and when they stay float."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tersely
from tersely.artifact import read
from tersely.engines.saturation import saturates
from tersely.graphs.layers import find_products
from tersely.graphs.plain import unfold
from tersely.measure.check import check
from tersely.options.compress import CompressOptions
from tersely.quant_map import QuantProduct, Range
from tersely.quantize.attention import kinds, settle_products
from tersely.quantize.ptq import PtqSettings, ptq
from tersely.quantize.samples import Samples
from tersely.quantize.targets import find_targets
from tersely.tasks import Feature
from widths import learnt

pytestmark = pytest.mark.slow  # what its fixtures make takes long

OWN, STANDARD = "onnx/model_attention.onnx", "onnx/model_quantized.onnx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows its rows, and the rows."""
    made = tmp_path_factory.mktemp("attention")
    learnt(made, hidden=64)
    return made


@pytest.fixture(scope="module")
def compressed(folder: Path) -> tuple[dict[str, Any], Path]:
    result = tersely.compress(
        folder / "model", train_file=folder / "train.jsonl", eval_file=folder / "dev.jsonl",
        output_dir=folder / "auto", strategy="ptq", algo_list="abs_max", calibration_rows=64,
    )  # fmt: skip
    return json.loads((folder / "auto" / "result.json").read_text()), result.path


def test_auto_gives_openvino_a_graph_of_its_own_for_exact_sums(compressed: tuple[dict[str, Any], Path]) -> None:
    content, path = compressed
    artifact = read(path)
    graphs = {graph.path: graph for graph in artifact.manifest.graphs}
    assert (graphs[OWN].engines, graphs[OWN].cpu_classes, graphs[OWN].data) == (
        ("openvino",),
        ("amx", "vnni"),
        (STANDARD,),
    )
    assert graphs[STANDARD].cpu_classes == ("all",)
    assert (path / OWN).stat().st_size < 0.5 * (path / STANDARD).stat().st_size  # the weights are shared
    products = [layer for layer in content["layers"] if layer.get("kind") == "product"]
    assert [product["precision"] for product in products] == ["int8", "int8"]
    chosen, engine = tersely.runtime.choose(artifact, "openvino")
    assert (chosen.path == OWN) == (not saturates("openvino"))
    assert engine == "openvino"
    replays = {(replay.graph, replay.engine): replay for replay in check(path)}
    assert {replay.verdict for replay in replays.values()} == {"ok"}
    assert ((OWN, "openvino") in replays) == (not saturates("openvino"))


def test_no_graph_for_all_cpus_has_integer_products(compressed: tuple[dict[str, Any], Path]) -> None:
    _, path = compressed

    def quantizers(name: str) -> int:
        proto = onnx.load(path / name, load_external_data=False)
        return sum(node.op_type == "QuantizeLinear" for node in proto.graph.node)

    own, others = (
        quantizers(OWN),
        {quantizers(f"onnx/model_{name}.onnx") for name in ("quantized", "onnxruntime", "signed")},
    )
    assert len(others) == 1
    assert own == others.pop() + 2 * 2  # q and k of two layers


def samples_and_graph(folder: Path, tmp_path: Path) -> tuple[Any, Samples]:
    from tersely.graphs.export import export_onnx

    export_onnx(folder / "model", tmp_path / "model.onnx")
    random = np.random.default_rng(0)
    rows = [Feature(i, random.integers(5, 60, 12), np.zeros(12, np.int64)) for i in range(24)]
    return unfold(onnx.load(tmp_path / "model.onnx")), Samples(rows[:16], rows[16:], {"n": 16}, 0)


def test_products_that_do_harm_stay_float_for_a_reason(folder: Path, tmp_path: Path) -> None:
    proto, samples = samples_and_graph(folder, tmp_path)
    found = ptq(proto, find_targets(proto, attention=("scores",)), samples, PtqSettings(algo_list=("abs_max",)))
    assert {product.kind for product in find_products(proto) if product.name in found["abs_max", "n"].products} == {
        "scores"
    }
    settled = settle_products(proto, found, samples, -1)["abs_max", "n"]
    assert settled.products == found["abs_max", "n"].products
    assert settled.product_classes == ("amx", "vnni")
    # Ranges a thousandth as wide cut q and k off: none of the candidates keeps its products.
    narrow = QuantProduct(Range(-1e-3, 1e-3), Range(-1e-3, 1e-3))
    spoilt = {**found, ("mse", "n"): replace(settled, products=dict.fromkeys(settled.products, narrow))}
    left_over = settle_products(proto, spoilt, samples, -1)
    assert left_over.keys() == spoilt.keys()
    for left in left_over.values():
        assert not left.products
        assert {left.left_float[name] for name in settled.products} == {"harmful"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("scores",)),
        ({"engines": ("onnxruntime",)}, ()),
        ({"quantize_attention": "off"}, ()),
        ({"quantize_attention": "on", "engines": ("onnxruntime",)}, ("scores", "context")),
    ],
)
def test_auto_takes_what_pays(options: dict[str, Any], expected: tuple[str, ...]) -> None:
    chosen = CompressOptions(**options)
    assert kinds(chosen.quantize_attention, chosen.engines) == expected
