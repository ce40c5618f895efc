"""Another order of heads and neurons: the same logits; the most important first; the model given untouched."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models import FAMILIES as NAMES
from models import HEADS as TASKS
from prunable_batches import batch_for, logits, off
from tersely.errors import UserError
from tersely.models.carve import locate
from tersely.models.carve.places import HEADS, NEURONS
from tersely.models.families import find
from tersely.models.torch_folder import load_module
from tersely.prune import Importance, reorder

# What a family computes in FP32 whatever its weights are (ModernBERT: rotary positions) is rounded in another order.
ROUNDED = {"modernbert": 1e-5}


def drawn(model, seed=0) -> Importance:
    places, draw = locate(model, find(model)), np.random.default_rng(seed)
    counts = [[places.count(unit, block) for block in range(len(places.blocks))] for unit in (HEADS, NEURONS)]
    heads, neurons = (tuple(draw.random(count) for count in unit) for unit in counts)
    return Importance(heads, neurons, 1)


@pytest.mark.parametrize("name", NAMES)
def test_logits_stay(prunable, name):
    model = load_module(prunable(name))
    batch = batch_for(model)
    scale = max(1.0, logits(model, batch).abs().max().item())
    assert off(logits(reorder(model, drawn(model)), batch), logits(model, batch)) <= 1e-5 * scale
    model = model.double()
    assert off(logits(reorder(model, drawn(model)), batch), logits(model, batch)) <= ROUNDED.get(name, 1e-10)


@pytest.mark.parametrize("head", TASKS[1:])
def test_logits_stay_under_other_heads(prunable, head):
    model = load_module(prunable("roberta", head)).double()
    batch = batch_for(model)
    assert off(logits(reorder(model, drawn(model)), batch), logits(model, batch)) <= 1e-10


def test_the_most_important_come_first_and_equal_ones_stay_in_order(prunable):
    model = load_module(prunable())
    heads, neurons = np.array([0.0, 3, 1, 3, 5, 1]), np.arange(96) // 2 * 1.0
    turned = reorder(model, Importance((heads,) * 3, (neurons,) * 3, 1))
    name = "bert.encoder.layer.1."
    before, after = (dict(module.named_parameters()) for module in (model, turned))
    query = before[f"{name}attention.self.query.weight"].view(6, 8, 48)[[4, 1, 3, 2, 5, 0]]
    assert torch.equal(after[f"{name}attention.self.query.weight"], query.reshape(48, 48))
    columns = torch.arange(96).view(48, 2).flip(0).flatten()
    assert torch.equal(after[f"{name}output.dense.weight"], before[f"{name}output.dense.weight"][:, columns])


def test_model_given_is_untouched(prunable):
    model = load_module(prunable()).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    turned = reorder(model, drawn(model))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert turned.training
    pointers = {parameter.data_ptr() for parameter in model.parameters()}
    assert pointers.isdisjoint({parameter.data_ptr() for parameter in turned.parameters()})


def test_layers_that_share_heads_take_the_order_of_the_sum(prunable):
    model = load_module(prunable("mpnet"))
    heads = tuple(np.array(scores, float) for scores in ([9, 0, 0, 0, 0, 0], [0, 5, 0, 0, 0, 0], [0, 5, 0, 0, 0, 0]))
    turned = reorder(model, Importance(heads, drawn(model).neurons, 1))
    table, new = (module.mpnet.encoder.relative_attention_bias.weight for module in (model, turned))
    assert torch.equal(new, table[:, [1, 0, 2, 3, 4, 5]])


def test_importance_of_another_model_is_refused(prunable):
    with pytest.raises(UserError, match=r"importance is of \[6, 6, 6\] heads; the model has \[6\]"):
        reorder(load_module(prunable("albert")), drawn(load_module(prunable())))
