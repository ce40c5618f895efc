"""Pruning without training to a budget of time, on small models of every family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_repair import opened

from models import EVERY_FAMILY
from tersely.engines.torch import as_tuple, output_names
from tersely.errors import UserError
from tersely.models.carve import Shape, carve
from tersely.models.carve.shape import neuron_step
from tersely.prune.importance import reorder
from tersely.prune.latency import Cost, LatencyTable
from tersely.prune.one_shot import OneShotPruner, shape_within
from tersely.prune.passage import real_positions
from tersely.prune.repair import repair

REPEATED = ("roberta", "camembert", "xlm_roberta", "ernie")
"""Families that are built as BERT is, or as RoBERTa."""


def pruner_of(tmp_path, family="bert", head="SequenceClassification", **settings):
    folder, *_ = opened(tmp_path, family, head, **settings)
    texts = [" ".join(["the", *row, "of", "a", "quick"]) for row in rows(60)]
    return OneShotPruner(folder, folder.task.read(read_rows(texts), columns(), labelled=False), seed=0)


def rows(count):
    generator = np.random.default_rng(0)
    words = ["river", "paris", "berlin", "old", "friday", "dog", "grace", "dark"]
    return [generator.choice(words, 5) for _ in range(count)]


def read_rows(texts):
    from tersely.data import rows_of

    return rows_of([{"text": text} for text in texts])


def columns():
    from tersely.tasks import Columns

    return Columns()


def table_for(full: Shape, per_head=1.0, per_neuron=0.1, rest=2.0) -> LatencyTable:
    """Times that are proportional to units."""
    heads = Cost((0, max(full.heads)), (0.0, per_head * max(full.heads)))
    neurons = Cost((0, max(full.ffn)), (0.0, per_neuron * max(full.ffn)))
    total = rest + per_head * sum(full.heads) + per_neuron * sum(full.ffn)
    return LatencyTable(total, total, heads, neurons, heads, neurons, {})


@pytest.mark.parametrize(
    "family",
    [pytest.param(family, marks=pytest.mark.long) if family in REPEATED else family for family in EVERY_FAMILY],
)
def test_the_model_fits_the_budget_and_says_how_far_its_outputs_moved(family, tmp_path):
    pruner = pruner_of(tmp_path, family)
    full = pruner.places.full
    table = table_for(full)
    pruned = pruner.prune(table, table.full / 1.5)
    assert table.seconds(pruned.shape, full) <= table.full / 1.5 * 1.001
    step = neuron_step(max(full.ffn))
    assert all(neurons % step == 0 or neurons == most for neurons, most in zip(pruned.shape.ffn, full.ffn, strict=True))
    if pruner.family.layers_share_weights:
        assert len(set(pruned.shape.heads)) == len(set(pruned.shape.ffn)) == 1
    if pruner.family.heads_are_shared:
        assert len(set(pruned.shape.heads)) == 1
    moved, count = 0.0, 0
    for inputs in pruner.sample.held_out:
        with torch.no_grad():
            before, after = (as_tuple(m(**inputs), output_names(m)) for m in (pruner.model, pruned.model))
        for old, new in zip(before, after, strict=True):
            moved += float((new - old).abs().sum())
            count += new.numel()
    assert pruned.change == pytest.approx(moved / count, rel=1e-4)


def test_positions_of_tokens_alone_count_where_each_has_an_answer(tmp_path):
    folder, *_ = opened(tmp_path, head="TokenClassification")
    from tersely.data import rows_of

    examples = folder.task.read(rows_of([{"words": list(row)} for row in rows(40)]), columns(), labelled=False)
    pruner = OneShotPruner(folder, examples, seed=0)
    pruned = pruner.prune(table_for(pruner.places.full), table_for(pruner.places.full).full / 1.4)
    moved, count = 0.0, 0
    for inputs in pruner.sample.held_out:
        mask = real_positions(inputs)
        with torch.no_grad():
            change = (pruned.model(**inputs).logits - pruner.model(**inputs).logits)[mask].abs()
        moved, count = moved + float(change.sum()), count + change.numel()
    assert pruned.change == pytest.approx(moved / count, rel=1e-4)


@pytest.mark.parametrize("speedup", [1.3, 2.0])
def test_of_two_shapes_the_one_that_moves_outputs_less_is_taken(speedup, tmp_path):
    pruner = pruner_of(tmp_path, layers=3)
    full = pruner.places.full
    table = table_for(full)
    slopes, surgery = pruner.scores
    assert (slopes.method, surgery.method) == ("fisher", "surgeon")
    taken = pruner.prune(table, table.full / speedup)
    both = {key: np.sqrt(harm * surgery.harms[key]) for key, harm in slopes.harms.items()}
    moved = {}
    for method, scores in {"fisher and surgeon": replace(slopes, harms=both), "surgeon": surgery}.items():
        shape = shape_within(pruner.places, scores, table, table.full / speedup)
        smaller = carve(reorder(pruner.model, scores.importance, pruner.family), pruner.family, shape).eval()
        repair(pruner.model, smaller, pruner.family, pruner.sample)
        with torch.no_grad():
            squares = [
                (smaller(**inputs).logits - pruner.model(**inputs).logits).square() for inputs in pruner.sample.held_out
            ]
        moved[method] = (float(torch.cat(squares).mean()), shape)
    best = min(moved, key=lambda method: moved[method][0])
    assert (taken.method, taken.shape) == (best, moved[best][1])


def test_the_same_seed_gives_the_same_weights(tmp_path):
    def weights():
        pruner = pruner_of(tmp_path)
        table = table_for(pruner.places.full)
        return pruner.prune(table, table.full / 1.5).model.state_dict()

    first, second = weights(), weights()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_a_time_that_is_reached_by_no_shape_is_refused(tmp_path):
    pruner = pruner_of(tmp_path)
    table = table_for(pruner.places.full, rest=10.0)
    fastest = table.full / 10.0
    with pytest.raises(UserError, match=rf"without any layer it is {fastest:.3g}"):
        pruner.prune(table, 5.0)


def test_where_nothing_must_go_nothing_goes(tmp_path):
    pruner = pruner_of(tmp_path)
    pruned = pruner.prune(table_for(pruner.places.full), 1e6)
    assert pruned.shape == pruner.places.full
    assert pruned.change < 1e-5
