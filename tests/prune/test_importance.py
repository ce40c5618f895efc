"""Importance against finite differences, one sample at a time; batch size and padding do not matter."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

from models import HEADS as TASKS
from prunable_batches import batch_for
from tersely.errors import UserError
from tersely.models.carve import locate
from tersely.models.carve.places import HEADS, NEURONS
from tersely.models.families import find
from tersely.models.torch_folder import load_module
from tersely.prune import importance, own_predictions

LENGTHS = (9, 4, 6, 11, 3)


def labelled(output, batch):
    return functional.cross_entropy(output.logits, batch["labels"], reduction="sum")


def rows(model, lengths=LENGTHS):
    batch = batch_for(model, lengths) | {"labels": torch.arange(len(lengths)) % 3}
    return [{name: value[i : i + 1, :n] if value.ndim == 2 else value[i : i + 1] for name, value in batch.items()}
            for i, n in enumerate(lengths)]  # fmt: skip


def by_differences(model, unit, block, number, loss, step=1e-4):
    """Σ over samples of |slope|, each from two forwards with one head or neuron made a little stronger and weaker."""
    places = locate(model, find(model))
    size = 1 if unit == NEURONS else 8
    total = 0.0
    for row in rows(model):
        values = []
        for factor in (1 + step, 1 - step):

            def scale(_module, inputs, factor=factor):
                scaled = inputs[0].clone()
                scaled[..., number * size : (number + 1) * size] *= factor
                return (scaled,)

            handle = model.get_submodule(places.outputs(unit)[block]).register_forward_pre_hook(scale)
            with torch.no_grad():
                values.append(loss(model(**{k: v for k, v in row.items() if k != "labels"}), row).item())
            handle.remove()
        total += abs(values[0] - values[1]) / (2 * step)
    return total


@pytest.mark.parametrize("name", ["bert", "distilbert", "mpnet", "deberta_v2", "albert", "modernbert"])
def test_importance_is_what_finite_differences_give(prunable, name):
    model = load_module(prunable(name)).double()
    found = importance(model, rows(model), labelled)
    last = len(found.heads) - 1
    for unit, block, number in ((HEADS, 0, 0), (HEADS, last, 5), (NEURONS, 0, 17), (NEURONS, last, 95)):
        got = (found.heads if unit == HEADS else found.neurons)[block][number]
        # ModernBERT rounds to FP32 inside, which two nearby losses show.
        expected = by_differences(model, unit, block, number, labelled)
        assert got == pytest.approx(expected, rel=1e-2 if name == "modernbert" else 1e-4, abs=1e-6), (unit, block)


@pytest.mark.parametrize("name", ["bert", "albert", "modernbert", "deberta_v2"])
def test_batches_and_padding_do_not_matter(prunable, name):
    model = load_module(prunable(name)).double()
    in_turn = importance(model, rows(model), labelled)
    batch = batch_for(model, LENGTHS, width=16) | {"labels": torch.arange(5) % 3}
    parts = [{key: value[i:j] for key, value in batch.items()} for i, j in ((0, 2), (2, 5))]
    for batches in ([batch], parts):
        together = importance(model, iter(batches), labelled)
        assert together.samples == in_turn.samples == 5
        for first, second in zip(together.heads + together.neurons, in_turn.heads + in_turn.neurons, strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-4 if name == "modernbert" else 1e-8, atol=1e-9)


def test_model_is_untouched(prunable):
    model = load_module(prunable()).train()
    model.bert.embeddings.requires_grad_(False)
    before, flags = copy.deepcopy(model.state_dict()), [parameter.requires_grad for parameter in model.parameters()]
    first = importance(model, rows(model), labelled)
    second = importance(model, rows(model), labelled)
    assert model.training
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(part._forward_pre_hooks for part in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(np.array_equal(a, b) for a, b in zip(first.neurons, second.neurons, strict=True))  # no dropout


def test_a_head_that_is_never_heard_has_none(prunable):
    model = load_module(prunable())
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.output.dense.weight[:, 16:24] = 0
    found = importance(model, rows(model), labelled)
    assert found.heads[1][2] == 0
    assert (np.delete(found.heads[1], 2) > 0).all()


def test_a_mode_without_gradients_around_it_changes_nothing(prunable):
    model = load_module(prunable())
    with torch.no_grad():
        inside = importance(model, rows(model), labelled)
    assert np.array_equal(inside.heads[0], importance(model, rows(model), labelled).heads[0])


@pytest.mark.parametrize("head", TASKS)
def test_own_predictions_serve_as_targets(prunable, head):
    model = load_module(prunable("bert", head)).double()
    wide = batch_for(model, LENGTHS, width=16)
    single = [{k: v for k, v in row.items() if k != "labels"} for row in rows(model)]
    together, apart = (importance(model, batches, own_predictions(model)) for batches in ([wide], single))
    for first, second in zip(together.heads, apart.heads, strict=True):
        assert (first > 0).all()
        np.testing.assert_allclose(first, second, rtol=1e-8)


@pytest.mark.parametrize(("problem", "labels"), [("multi_label_classification", 3), ("regression", 1)])
def test_own_predictions_of_other_kinds_have_a_slope(prunable, problem, labels):
    model = load_module(prunable("bert", problem_type=problem, id2label={i: f"L{i}" for i in range(labels)}))
    found = importance(model, [batch_for(model)], own_predictions(model))
    assert [len(scores) for scores in found.heads] == [6, 6, 6]
    assert all((scores > 0).all() for scores in found.heads)


def test_bad_losses_and_no_rows_are_refused(prunable):
    model = load_module(prunable())
    with pytest.raises(UserError, match="There are no rows"):
        importance(model, [], labelled)
    with pytest.raises(UserError, match=r"must give one number.* Got \[5, 3\]"):
        importance(model, [batch_for(model, LENGTHS)], lambda output, batch: output.logits)
    with pytest.raises(UserError, match="The loss is nan"):
        importance(model, [batch_for(model)], lambda output, batch: output.logits.sum() * float("nan"))


def test_outputs_that_say_no_targets_are_refused(prunable):
    model = load_module(prunable())

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, **inputs):
            scores = torch.sigmoid(self.inner(**inputs).logits)
            return scores, 1 - scores

    found = importance(Two(), [batch_for(model)], lambda output, batch: output[0].sum())
    assert len(found.heads) == 3
    with pytest.raises(UserError, match="gives 2 outputs, whose targets cannot be read"):
        importance(Two(), [batch_for(model)], own_predictions(Two()))
