"""A trace that is kept is found again by models of the same kind alone, and gets their weights."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from exported_once import fingerprint, keeping, origins
from folders import digests
from models import build
from tersely.graphs.export import export_onnx, share

FAMILIES = [
    pytest.param("bert", marks=pytest.mark.slow),
    *(pytest.param(family, marks=pytest.mark.long) for family in ("albert", "deberta_v2", "modernbert", "roberta")),
]
INPUTS = (torch.ones(2, 8, dtype=torch.int64),)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from tersely.models.torch_folder import load_module

    return share(load_module(build(tmp_path_factory.mktemp("model"), layers=1)))


@pytest.mark.parametrize("family", FAMILIES)
def test_kept_trace_is_the_exporters_for_other_weights_too(family, tmp_path):
    from tersely.models.torch_folder import load_module

    first, second = (load_module(build(tmp_path / f"{seed}", family, layers=1, seed=seed)) for seed in range(2))
    with torch.no_grad():
        for model in (first, second):
            for weight in model.parameters():
                weight += torch.randn_like(weight)
    with keeping(tmp_path / "kept"):
        export_onnx(first, tmp_path / "first")
        kept = digests(tmp_path / "kept")
        export_onnx(second, tmp_path / "second")
        assert digests(tmp_path / "kept") == kept
    with keeping(None):
        export_onnx(second, tmp_path / "traced")
    traced, other, found = (onnx.load(tmp_path / name).graph for name in ("traced", "first", "second"))
    assert found == traced != other


def test_what_differs_has_another_fingerprint(model):
    def attribute(model):
        model.bert.encoder.layer[0].attention.self.scaling *= 2

    def weight(model):
        next(model.parameters()).data[0, 0] += 1e-6

    def config(model):
        model.config.hidden_act = "relu"

    def kind(model):
        model.dropout = torch.nn.Identity()

    def nothing(model):
        model.bert.pooler.dense.weight.data.zero_()

    def twice(model):
        layer = model.bert.encoder.layer[0].attention.self
        layer.query.weight.data.copy_(layer.key.weight.data)

    def tied(model):
        layer = model.bert.encoder.layer[0].attention.self
        layer.query.weight = layer.key.weight

    def buffer(model):
        model.bert.embeddings.position_ids += 1

    own = fingerprint(model, INPUTS, {})
    assert own == fingerprint(copy.deepcopy(model), INPUTS, {})
    found = {own, fingerprint(model, (INPUTS[0] * 2,), {}), fingerprint(model, INPUTS, {"opset_version": 1})}
    changes = (attribute, weight, config, kind, nothing, twice, tied, buffer)
    for change in changes:
        changed = copy.deepcopy(model)
        change(changed)
        found |= {fingerprint(changed, INPUTS, {}), fingerprint(changed, INPUTS, {}, weights=False)}
    kind_alone = fingerprint(model, INPUTS, {}, weights=False)
    assert len(found) == 3 + 2 * len(changes)
    assert kind_alone in found, "another weight makes no other kind"


def test_tensor_that_is_nobodys_weight_is_kept_for_the_same_weights_alone(model):
    def graph(*values):
        return helper.make_graph([], "g", [], [], [numpy_helper.from_array(value, f"v{i}") for i, value in values])

    def found(*values):
        return origins(helper.make_model(graph(*enumerate(values))), model)

    weight = model.classifier.weight.detach().numpy()
    bias = model.bert.embeddings.LayerNorm.weight.detach().numpy()
    assert found(weight, np.ascontiguousarray(weight.T), np.float32(3), np.arange(4)) == {
        "v0": ("classifier.weight", False), "v1": ("classifier.weight", True),
    }  # fmt: skip
    assert found(weight, bias + 1) is None


def test_functions_of_ones_own_have_none(model):
    hooked, patched = copy.deepcopy(model), copy.deepcopy(model)
    hooked.bert.register_forward_hook(lambda *_: None)
    patched.bert.forward = lambda *_: None
    assert fingerprint(hooked, INPUTS, {}) is None
    assert fingerprint(patched, INPUTS, {}) is None
