"""Repair without training: against NumPy's least squares, and on models of every family."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models import EVERY_FAMILY, SENTENCES, build
from tersely.models.carve import Shape, carve, locate, shape_of
from tersely.models.carve.places import HEADS, NEURONS
from tersely.models.families import find
from tersely.models.folder import open_folder
from tersely.prune.answers import AnswerDistance
from tersely.prune.fisher import fisher
from tersely.prune.importance import masked, reorder
from tersely.prune.passage import Passage, real_positions
from tersely.prune.repair import Gram, repair
from tersely.prune.sample import Sample, draw
from tersely.prune.scores import level_units
from tersely.prune.surgeon import surgeon
from tersely.tasks import Columns
from tersely.tasks.sequence_classification import SINGLE


def opened(tmp_path, family="bert", head="SequenceClassification", rows=80, **settings):
    folder = open_folder(build(tmp_path / "model", family, head, **settings))
    words = " ".join(SENTENCES[:6]).split()
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(words, int(generator.integers(4, 20)))) for _ in range(rows)]
    examples = folder.task.read(_rows(texts, head), Columns(), labelled=False)
    model = folder.load().eval()
    return folder, model, find(model), draw(folder, model, examples, 0)


def _rows(texts, head):
    from tersely.data import rows_of

    if head == "TokenClassification":
        return rows_of([{"words": text.split()} for text in texts])
    if head == "QuestionAnswering":
        return rows_of([{"question": text[:20], "context": text} for text in texts])
    return rows_of([{"text": text} for text in texts])


def distance(full, other, sample: Sample) -> float:
    """Mean squared difference of the outputs on held-out rows."""
    total = []
    for inputs in sample.held_out:
        with torch.no_grad():
            a, b = full(**inputs), other(**inputs)
        mask = real_positions(inputs)
        for output, another in zip(a.to_tuple(), b.to_tuple(), strict=True):
            change = (output - another).square()
            total.append(change[mask].flatten() if change.shape[:2] == mask.shape else change.flatten())
    return float(torch.cat(total).mean())


@pytest.mark.parametrize("bias", [True, False])
def test_streamed_sums_solve_the_ridge_regression_that_numpy_solves(bias):
    generator = np.random.default_rng(0)
    x, e = generator.normal(size=(200, 7)) + 1, generator.normal(size=(200, 3)) + 2
    gram = Gram(7, 3, bias)
    for part in np.split(np.arange(200), [30, 90, 91]):
        gram.add(torch.from_numpy(x[part]), torch.from_numpy(e[part]))
    found = gram.solve(0.1).numpy()
    penalty = np.sqrt(0.1 * np.square(x).sum(0).mean())
    stacked = np.hstack([x, np.ones((200, 1))]) if bias else x
    extra = np.hstack([np.eye(7) * penalty, np.zeros((7, 1))]) if bias else np.eye(7) * penalty
    expected = np.linalg.lstsq(np.vstack([stacked, extra]), np.vstack([e, np.zeros((7, 3))]), rcond=None)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    left = np.square(e - stacked @ expected).sum()
    assert gram.error_with(torch.from_numpy(expected)) == pytest.approx(left, rel=1e-9)


def test_a_model_that_lost_nothing_stays_as_it_is(tmp_path):
    _, model, family, sample = opened(tmp_path)
    same = carve(model, family, shape_of(model, family)).eval()
    assert all(repaired.damping is None or repaired.left > 0.5 for repaired in repair(model, same, family, sample))
    assert distance(model, same, sample) < 1e-8


def test_a_layer_entered_from_the_outside_gives_what_it_gives_within(tmp_path):
    _, model, family, sample = opened(tmp_path, layers=3)
    passage = Passage(model, family)
    inputs = sample.fitting[0]
    seen = passage.run(inputs, passage.places.blocks)
    for block, name in enumerate(passage.places.blocks):
        state = seen.inputs[name][0].clone()
        assert torch.equal(passage.run(inputs, start=(block, state)).outputs[0], seen.outputs[0])
    assert "forward" not in vars(model.get_submodule(passage.places.blocks[0]))


def test_padding_and_batches_do_not_matter(tmp_path):
    _, model, family, sample = opened(tmp_path)
    wider = Sample(
        tuple({n: torch.nn.functional.pad(t, (0, 5)) for n, t in batch.items()} for batch in sample.fitting),
        sample.held_out,
        sample.rows,
    )
    full = shape_of(model, family)
    models = []
    for rows in (sample, wider):
        pruned = carve(model, family, Shape((2, 2), (24, 32), full.layers)).eval()
        repair(model, pruned, family, rows)
        models.append(pruned)
    assert distance(*models, sample) < 1e-6


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_repair_finds_the_weights_that_were_spoilt(family, tmp_path):
    """In every family: what is added to what, and in which order layers come, is read rightly."""
    _, model, description, sample = opened(tmp_path, family)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    spoilt = carve(model, description, shape_of(model, description)).eval()
    places = Passage(spoilt, description).places
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name in (*places.outputs(HEADS), *places.outputs(NEURONS)):
            weight = spoilt.get_submodule(name).weight
            weight += 0.3 * weight.std() * torch.randn(weight.shape, generator=generator)
    away = distance(model, spoilt, sample)
    repaired = repair(model, spoilt, description, sample)
    assert {layer.name for layer in repaired} == {*places.outputs(HEADS), *places.outputs(NEURONS)}
    # ALBERT's one layer is fitted once to inputs that its own errors have changed: better, not whole.
    assert distance(model, spoilt, sample) < (0.5 if family == "albert" else 0.05) * away
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_both_ways_score_every_unit_of_every_family(family, tmp_path):
    _, model, description, sample = opened(tmp_path, family, rows=20)
    places = Passage(model, description).places
    answers = AnswerDistance(SINGLE)
    for scores in (fisher(model, description, sample.fitting, answers), surgeon(model, description, sample, answers)):
        pruned = carve(reorder(model, scores.importance, description), description, places.full)
        assert distance(model, pruned.eval(), sample) < 1e-6  # an order of units, none twice
        for (unit, block), harms in scores.harms.items():
            assert len(harms) == len(level_units(unit, block, places))
            assert harms[-1] == 0
            assert (np.diff(harms) <= 1e-12).all()
            assert harms[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("head", ["TokenClassification", "QuestionAnswering"])
def test_repair_serves_tasks_that_answer_for_tokens(head, tmp_path):
    _, model, family, sample = opened(tmp_path, head=head)
    full = shape_of(model, family)
    pruned = carve(model, family, Shape((0, 3), (40, 0), full.layers)).eval()
    unrepaired = distance(model, pruned, sample)
    repair(model, pruned, family, sample)
    assert distance(model, pruned, sample) < 0.9 * unrepaired


def test_the_surgeon_drops_a_head_that_another_one_repeats(tmp_path):
    """What the others can make good is cheap, however large its weights: fisher cannot know, the surgeon must."""
    _, model, family, sample = opened(tmp_path)
    layer = model.bert.encoder.layer[0].attention
    size = layer.self.attention_head_size
    with torch.no_grad():
        for part in (layer.self.query, layer.self.key, layer.self.value):
            part.weight[:size], part.bias[:size] = part.weight[size : 2 * size], part.bias[size : 2 * size]
    order = np.argsort(-surgeon(model, family, sample, AnswerDistance(SINGLE)).importance.heads[0], kind="stable")
    assert order[-1] in (0, 1)


def test_the_harm_of_a_level_is_the_squared_slope_of_outputs(tmp_path):
    """Against gradients of every output, one by one, for one head."""
    _, model, family, sample = opened(tmp_path, rows=10)
    scores = fisher(model, family, sample.fitting * 40, AnswerDistance(SINGLE), seed=1)
    total, rows = 0.0, 0
    for inputs in sample.fitting:
        with torch.enable_grad(), masked(model, locate(model, family)) as masks:
            logits = model(**inputs).logits
            for label in range(logits.shape[1]):
                (slope,) = torch.autograd.grad(logits[:, label].sum(), masks["heads", 0], retain_graph=True)
                total += float(slope[:, 0].double().square().sum())
        rows += len(inputs["input_ids"])
    assert scores.importance.heads[0][0] == pytest.approx(total / rows, rel=0.35)
