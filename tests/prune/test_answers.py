"""What answers hang on: the probe against the distance itself, weights against what a nudge does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from test_repair import opened

from tersely.engines.torch import as_tuple, output_names
from tersely.models.carve import locate
from tersely.models.carve.places import HEADS, NEURONS
from tersely.prune.answers import FLOOR, AnswerDistance, weighed
from tersely.prune.passage import real_positions
from tersely.tasks.sequence_classification import MULTI, REGRESSION, SINGLE
from tersely.training.losses import OWN, QUESTION, TOKENS

MASK = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
INPUTS = {"input_ids": torch.ones(3, 5, dtype=torch.long), "attention_mask": MASK}
SHAPES = {SINGLE: (3, 4), MULTI: (3, 4), REGRESSION: (3, 1), TOKENS: (3, 5, 4), QUESTION: (3, 5), OWN: (3, 5)}


@pytest.mark.parametrize("kind", SHAPES)
def test_the_squared_slope_of_the_probe_is_how_far_answers_move(kind):
    """Move the outputs a little along a line: twice the distance by the squared step is the curvature there."""
    generator = torch.Generator().manual_seed(0)
    answers, count = AnswerDistance(kind), 2 if kind == QUESTION else 1
    z = [torch.randn(SHAPES[kind], generator=generator).double() for _ in range(count)]
    line = [torch.randn(SHAPES[kind], generator=generator).double() for _ in range(count)]
    squares = []
    for seed in range(4000):
        m = torch.zeros((), dtype=torch.float64, requires_grad=True)
        outputs = tuple(a + m * b for a, b in zip(z, line, strict=True))
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(answers.probe(outputs, INPUTS, torch.Generator().manual_seed(seed)), m)
        squares.append(float(slope) ** 2)
    step = 0.03
    moved, _ = answers.change(tuple(a + step * b for a, b in zip(z, line, strict=True)), tuple(z), INPUTS)
    curvature = 2 * moved / step**2
    # The loss of a question is the mean over its ends; squared differences have no half.
    share = {QUESTION: 2, TOKENS: 1}.get(kind, 0.5)
    assert np.mean(squares) == pytest.approx(share * curvature, rel=0.12)


@pytest.mark.parametrize("head", ["TokenClassification", "QuestionAnswering"])
def test_positions_weigh_what_a_nudge_there_does_to_the_answers(head, tmp_path):
    folder, model, family, sample = opened(tmp_path, head=head, rows=24)
    answers, names = AnswerDistance(folder.task.loss), output_names(model)
    weights = [weighed(model, family, sample, answers, seed=seed) for seed in range(12)]
    inputs = sample.fitting[0]
    mask, old = real_positions(inputs), as_tuple(model(**inputs), names)
    generator = torch.Generator().manual_seed(1)
    for unit in (HEADS, NEURONS):
        module = model.get_submodule(locate(model, family).outputs(unit)[0])
        found, expected = [], []
        for position in range(8):
            moved = 0.0
            for _ in range(12):
                nudge = 0.05 * torch.randn(len(mask), module.out_features, generator=generator)
                handle = module.register_forward_hook(lambda _m, _i, o, p=position, n=nudge: _nudged(o, p, n))
                with torch.no_grad():
                    moved += answers.change(as_tuple(model(**inputs), names), old, inputs)[0]
                handle.remove()
            expected.append(moved)
            found.append(float(np.mean([(w.fitting_weights[0][unit, 0] - FLOOR)[:, position].sum() for w in weights])))
        assert spearmanr(found, expected).statistic > 0.7
    batches = [(*w.weighted_fitting, *w.weighted_held_out) for w in weights]
    means = [
        sum(float(w[HEADS, 0][real_positions(i)].sum()) for i, w in pairs)
        / sum(float(real_positions(i).sum()) for i, _ in pairs)
        for pairs in batches
    ]
    np.testing.assert_allclose(means, 1, rtol=1e-4)


def _nudged(output, position, nudge):
    output = output.clone()
    output[:, position] += nudge
    return output


@pytest.mark.parametrize(("family", "head"), [("albert", "TokenClassification"), ("bert", "SequenceClassification")])
def test_a_shared_layer_and_rows_with_one_answer_have_no_weights(family, head, tmp_path):
    folder, model, family, sample = opened(tmp_path, family, head=head, rows=24)
    assert weighed(model, family, sample, AnswerDistance(folder.task.loss)) is sample
