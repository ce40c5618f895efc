"""A trace that is kept is found again by the same model alone."""

from __future__ import annotations

import copy

import onnx
import pytest
import torch

from exported_once import fingerprint, keeping
from models import build
from tersely.graphs.export import export_onnx, share

INPUTS = (torch.ones(2, 8, dtype=torch.int64),)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from tersely.models.torch_folder import load_module

    return share(load_module(build(tmp_path_factory.mktemp("model"), layers=1)))


@pytest.mark.slow
def test_kept_trace_is_the_exporters(model, tmp_path):
    with keeping(tmp_path / "kept"):
        for name in ("first", "second"):
            export_onnx(model, tmp_path / name)
    with keeping(None):
        export_onnx(model, tmp_path / "traced")
    assert len(list((tmp_path / "kept").iterdir())) == 1
    first, *others = (onnx.load(tmp_path / name) for name in ("first", "second", "traced"))
    assert all(other.graph == first.graph for other in others)


def test_what_differs_has_another_fingerprint(model):
    def attribute(one):
        one.bert.encoder.layer[0].attention.self.scaling *= 2

    def weight(one):
        next(one.parameters()).data[0, 0] += 1e-6

    def config(one):
        one.config.hidden_act = "relu"

    def kind(one):
        one.dropout = torch.nn.Identity()

    own = fingerprint(model, INPUTS, {})
    assert own == fingerprint(copy.deepcopy(model), INPUTS, {})
    found = {own, fingerprint(model, (INPUTS[0] * 2,), {}), fingerprint(model, INPUTS, {"opset_version": 1})}
    for change in (attribute, weight, config, kind):
        changed = copy.deepcopy(model)
        change(changed)
        found.add(fingerprint(changed, INPUTS, {}))
    assert len(found) == 7


def test_functions_of_ones_own_have_none(model):
    hooked, patched = copy.deepcopy(model), copy.deepcopy(model)
    hooked.bert.register_forward_hook(lambda *_: None)
    patched.bert.forward = lambda *_: None
    assert fingerprint(hooked, INPUTS, {}) is None
    assert fingerprint(patched, INPUTS, {}) is None
