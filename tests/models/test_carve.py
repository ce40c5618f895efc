"""Smaller models: of the right sizes, of weights of their own, again and again; the full model stays as it is."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
import transformers

from models import FAMILIES as NAMES
from prunable_batches import batch_for, logits, off
from tersely.errors import UserError
from tersely.models.carve import Shape, carve, locate, shape_for, shape_of, skeleton, slices
from tersely.models.families import FAMILIES, find
from tersely.models.torch_folder import load_module

HALF = Fraction(1, 2)


@pytest.mark.parametrize("name", NAMES)
def test_carved_model_has_the_sizes_of_its_shape(prunable, name):
    model = load_module(prunable(name))
    family = find(model)
    shape = shape_for(shape_of(model, family), HALF, Fraction(2, 3))
    carved = carve(model, family, shape)
    assert shape == Shape((3, 3), (48, 48), (0, 2))
    assert shape_of(carved, family) == shape.standing_alone
    assert type(carved) is type(model)
    assert carved.config.num_hidden_layers == 2
    assert sum(p.numel() for p in carved.parameters()) < sum(p.numel() for p in model.parameters())
    assert all(parameter.is_contiguous() for parameter in carved.parameters())


def test_carving_leaves_the_full_model_alone(prunable):
    model = load_module(prunable()).train()
    before = copy.deepcopy(model)
    carved = carve(model, find(model), shape_for(shape_of(model, find(model)), HALF, HALF))
    with torch.no_grad():
        for parameter in carved.parameters():
            parameter.zero_()
    assert model.training
    assert model.config.to_dict() == before.config.to_dict()
    assert all(
        torch.equal(parameter, old) for parameter, old in zip(model.parameters(), before.parameters(), strict=True)
    )


@pytest.mark.parametrize("name", ["bert", "albert", "mpnet", "modernbert"])
def test_carved_model_is_carved_again(prunable, name):
    model = load_module(prunable(name))
    family, batch = find(model), batch_for(model)
    full = shape_of(model, family)
    once = carve(model, family, Shape((4,) * 3, (64,) * 3, (0, 1, 2)))
    twice = carve(once, family, shape_for(shape_of(once, family), HALF, Fraction(2, 3)))
    at_once = carve(model, family, Shape((2, 2), (32, 32), (0, 2)))
    assert shape_of(once, family) != full
    assert off(logits(twice, batch), logits(at_once, batch)) <= 1e-6


def test_carved_model_learns_further(prunable):
    model = load_module(prunable())
    carved = carve(model, find(model), shape_for(shape_of(model, find(model)), HALF))  # no dropout
    batch = batch_for(model) | {"labels": torch.tensor([0, 1, 2])}
    optimizer = torch.optim.AdamW(carved.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        loss = carved(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_skeleton_holds_no_memory(prunable):
    model = load_module(prunable())
    bones = skeleton(model, find(model), shape_for(shape_of(model, find(model)), HALF))
    assert all(tensor.is_meta for tensor in [*bones.parameters(), *bones.buffers()])


def test_slices_name_every_tensor_of_the_smaller_model_and_are_views(prunable):
    model = load_module(prunable())
    family = find(model)
    shape = shape_for(shape_of(model, family), HALF, HALF)
    parts = slices(model, locate(model, family), shape)
    carved = carve(model, family, shape)
    assert set(parts) == {name for name, _ in [*carved.named_parameters(), *carved.named_buffers()]}
    full = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, taken in parts.items():
        part = taken.of(full[taken.source])
        assert part.untyped_storage().data_ptr() == full[taken.source].untyped_storage().data_ptr(), name


def test_tied_weights_stay_tied():
    config = transformers.BertConfig(
        hidden_size=16, num_attention_heads=4, intermediate_size=32, num_hidden_layers=2, vocab_size=20
    )
    model = transformers.BertForMaskedLM(config)
    carved = carve(model, find(model), Shape((2, 2), (16, 16), (0, 1)))
    assert carved.cls.predictions.decoder.weight is carved.bert.embeddings.word_embeddings.weight
    assert not any(parameter.is_meta for parameter in carved.parameters())


def test_frozen_weights_and_half_precision_stay_so(prunable):
    model = load_module(prunable()).bfloat16()
    model.bert.embeddings.requires_grad_(False)
    carved = carve(model, find(model), shape_for(shape_of(model, find(model)), HALF))
    assert {parameter.dtype for parameter in carved.parameters()} == {torch.bfloat16}
    frozen = {name for name, parameter in carved.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


def test_encoder_without_a_head_is_carved_with_its_hidden_states(prunable):
    model = load_module(prunable()).bert
    carved = carve(model, find(model), Shape((2, 3), (8, 16), (0, 2)))
    states = carved(**batch_for(model), output_hidden_states=True).hidden_states
    assert len(states) == 3


def test_modernbert_keeps_the_kind_of_attention_of_each_layer(prunable):
    model = load_module(prunable("modernbert", layer_types=["full_attention", "sliding_attention", "full_attention"]))
    carved = carve(model, find(model), Shape((6, 6), (96, 96), (0, 2)))
    assert carved.config.layer_types == ["full_attention", "full_attention"]
    assert model.config.layer_types[1] == "sliding_attention"


MISFITS = {
    "names layer 3; the model has 3": {"layers": (0, 1, 3)},
    "has 7 heads in layer 0; the model has 6": {"heads": (7, 6, 6)},
    "has 97 neurons in layer 2; the model has 96": {"ffn": (96, 96, 97)},
}


@pytest.mark.parametrize("message", MISFITS)
def test_shape_that_is_no_part_of_the_model_is_refused(prunable, message):
    model = load_module(prunable())
    shape = replace(shape_of(model, find(model)), **MISFITS[message])
    with pytest.raises(UserError, match=message):
        carve(model, find(model), shape)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("mpnet", {"heads": (6, 5, 5)}, "All layers of 'mpnet' must keep the same number of heads"),
        ("albert", {"heads": (6, 5, 5)}, "All layers of 'albert' must keep the same number of heads"),
        ("albert", {"ffn": (96, 96, 8)}, "All layers of 'albert' share one FFN"),
    ],
)
def test_layers_that_share_something_must_share_its_size(prunable, name, changes, message):
    model = load_module(prunable(name))
    with pytest.raises(UserError, match=message):
        carve(model, FAMILIES[name], replace(shape_of(model, FAMILIES[name]), **changes))
