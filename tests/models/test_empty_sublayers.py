"""Layers without heads or neurons: carved, saved, loaded, exported and run as zeros in the full model would be."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from models import EVERY_FAMILY, build
from tersely import load_model
from tersely.graphs.export import export_onnx
from tersely.models.carve import Shape, carve, shape_of, twin
from tersely.models.carve.places import HEADS, NEURONS, locate
from tersely.models.families import find
from tersely.models.folder import open_folder
from tersely.training.model_folder import save_carved

IDS = torch.arange(5, 23).reshape(2, 9)
INPUTS = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}


def uneven(full: Shape, family: str) -> list[Shape]:
    """Shapes with empty sublayers; ALBERT's layers are one, MPNet's share their heads."""
    if family == "albert":
        return [Shape((0, 0), full.ffn, full.layers), Shape(full.heads, (0, 0), full.layers)]
    if family == "mpnet":
        return [Shape(full.heads, (0, 16), full.layers)]
    return [Shape((0, 2), (16, 0), full.layers)]


def muted(model, family, shape: Shape):
    """The full model with the same units multiplied by zero: the reference."""
    copied = twin(model, torch.clone).eval()
    places = locate(copied, family)
    for unit, sizes in ((HEADS, shape.heads), (NEURONS, shape.ffn)):
        for block, name in enumerate(places.outputs(unit)):
            linear = copied.get_submodule(name)
            if not linear.in_features:
                continue
            kept = linear.in_features // places.count(unit, block) * sizes[block]
            with torch.no_grad():
                linear.weight[:, kept:] = 0
    return copied


@pytest.mark.slow
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_an_empty_sublayer_is_carved_saved_loaded_and_exported(family, tmp_path):
    folder = build(tmp_path / "model", family)
    model = open_folder(folder).load().eval()
    description = find(model)
    for number, shape in enumerate(uneven(shape_of(model, description), family)):
        carved = carve(model, description, shape).eval()
        assert shape_of(carved, description) == shape
        with torch.no_grad():
            expected = muted(model, description, shape)(**INPUTS).logits
            torch.testing.assert_close(carved(**INPUTS).logits, expected, rtol=1e-4, atol=1e-4)
        save_carved(carved, tmp_path / f"carved{number}", source=folder)
        opened = load_model(tmp_path / f"carved{number}").eval()
        assert shape_of(opened, description) == shape
        with torch.no_grad():
            assert torch.equal(opened(**INPUTS).logits, carved(**INPUTS).logits)
        export_onnx(opened, tmp_path / "graph.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "graph.onnx")
        feed = {name.name: INPUTS.get(name.name, torch.zeros_like(IDS)).numpy() for name in session.get_inputs()}
        np.testing.assert_allclose(session.run(None, feed)[0], expected.numpy(), rtol=1e-3, atol=1e-4)
        operators = [node.op_type for node in onnx.load(tmp_path / "graph.onnx").graph.node]
        assert operators.count("Softmax") == sum(heads > 0 for heads in shape.heads)


def test_an_empty_sublayer_trains_and_is_carved_again(tmp_path):
    model = open_folder(build(tmp_path / "model")).load()
    family = find(model)
    full = shape_of(model, family)
    carved = carve(model, family, Shape((0, full.heads[1]), (full.ffn[0], 0), full.layers)).train()
    before = carved.get_submodule(locate(carved, family).outputs(HEADS)[0]).bias.detach().clone()
    optimizer = torch.optim.SGD(carved.parameters(), 0.1)
    carved(**INPUTS, labels=torch.tensor([0, 1])).loss.backward()
    optimizer.step()
    assert not torch.equal(carved.get_submodule(locate(carved, family).outputs(HEADS)[0]).bias, before)
    again = carve(carved, family, Shape((0, 1), (0, 0), full.layers)).eval()
    reference = muted(carved, family, Shape((0, 1), (0, 0), full.layers))
    with torch.no_grad():
        torch.testing.assert_close(again(**INPUTS).logits, reference(**INPUTS).logits, rtol=1e-4, atol=1e-4)
