"""A fake-quantized model computes what its exported INT8 graph gives, on both engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fake_quantized import Subject, exported
from models import FAMILIES, build
from tersely import engines
from tersely.engines.torch import input_names
from tersely.errors import UserError
from tersely.models.torch_folder import load_module
from tersely.qat import QatSettings
from tersely.qat.model import FakeQuantLinear
from tersely.training.batches import Collator

TOLERANCE = 0.02
"""Of the spread of the logits: floats are added in another order, and single codes flip."""


def subject(folder: Path, family: str = "bert") -> Subject:
    return Subject.of(build(folder / "model", family, hidden=64, layers=2, std=0.08))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return subject(tmp_path_factory.mktemp("made"))


@pytest.fixture
def bert(made):
    """A model of its own for each test, its graph exported once."""
    return replace(made, model=load_module(made.folder.path))


def agree(subject: Subject, quantized, place: Path) -> None:
    ours = subject.logits(engines.load("torch", quantized.model))
    spread = float(np.std(np.concatenate([array.ravel() for array in ours])))
    for name, engine in exported(quantized, place).items():
        theirs = subject.logits(engine)
        off = float(np.mean([np.abs(a - b).mean() for a, b in zip(ours, theirs, strict=True)]))
        assert off < TOLERANCE * spread, (name, off, spread)


def trained_a_little(subject: Subject, quantized) -> None:
    """Move weights, clips and ranges as training does."""
    batch = Collator(subject.folder.encoder, input_names(subject.model))(
        [{"feature": f} for f in subject.samples.features]
    )
    optimizer = torch.optim.Adam(quantized.parameters(), lr=2e-3)
    for _ in range(3):
        output, _ = quantized(**batch)
        loss = sum(value.square().mean() for value in output.values() if isinstance(value, torch.Tensor))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        quantized.fold()


LIKE_ANOTHER = {"roberta", "xlm_roberta", "camembert", "ernie", "electra", "mpnet", "distilbert", "deberta_v2"}
"""Their linear layers lie as those of bert do."""
EVERY = [
    pytest.param(family, marks=pytest.mark.long if family in LIKE_ANOTHER else pytest.mark.slow) for family in FAMILIES
]


def test_exported_graph_gives_the_models_own_logits_before_training(bert, tmp_path):
    agree(bert, bert.quantized(QatSettings(algo_list=("mse",))), tmp_path / "before")


@pytest.mark.parametrize("family", EVERY)
def test_exported_graphs_give_the_models_own_logits(family, tmp_path):
    fresh = subject(tmp_path, family)
    quantized = fresh.quantized(QatSettings(algo_list=("mse",)))
    trained_a_little(fresh, quantized)
    agree(fresh, quantized, tmp_path / "after")


def test_training_starts_where_ptq_ends(bert):
    quantized = bert.quantized(QatSettings(algo_list=("mse",)))
    assert quantized.quant_map().layers.keys() == quantized.start.layers.keys() != set()
    for name, layer in quantized.quant_map().layers.items():
        begun = quantized.start.layers[name]
        found = layer.range.low, layer.range.high
        assert found == pytest.approx((begun.range.low, begun.range.high), rel=1e-6)
        assert np.allclose(layer.scales, begun.scales, rtol=1e-6)
        # A pair that must be brought down is brought down evenly, not by how much each input counts.
        assert np.mean(layer.integers != begun.integers) < 0.02


def test_a_weight_that_no_linear_layer_has_is_refused_by_name(bert):
    bert.model.bert.pooler.dense = torch.nn.Bilinear(64, 1, 64)
    with pytest.raises(UserError, match=r"'bert.pooler.dense.weight' belongs to no linear layer.*skip_layers"):
        bert.quantized(QatSettings(algo_list=("mse",)))


def test_layers_that_share_an_input_share_a_quantizer(bert):
    quantized = bert.quantized(QatSettings(algo_list=("mse",)))
    inside = quantized.model.bert.encoder.layer[0].attention.self
    assert inside.query.quantizer is inside.key.quantizer is inside.value.quantizer
    layers = [part for part in quantized.model.modules() if isinstance(part, FakeQuantLinear)]
    assert len(layers) == 2 * 6 + 1  # and the pooler; the classifier is small
    # The last layer's query is asked for the first position alone, so that its input is another one.
    assert len(quantized.quantizers) == 2 * 4 + 1 + 1
