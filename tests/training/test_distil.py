"""The losses of distillation against loops over rows, positions and labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from prunable_batches import batch_for
from tersely.engines.torch import as_tuple, output_names
from tersely.models.torch_folder import load_module
from tersely.tasks.sequence_classification import MULTI, REGRESSION, SINGLE
from tersely.training.losses import ONE, QUESTION, TOKENS, Counts, hidden_loss, label_loss, logits_loss

LENGTHS = (7, 4, 1)
MASK = (torch.arange(7) < torch.tensor(LENGTHS)[:, None]).long()
COUNTS = Counts(rows=3.0, tokens=float(sum(LENGTHS)), labelled_rows=3.0, labelled=5.0)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def softmax(row: np.ndarray, temperature: float) -> np.ndarray:
    powers = [math.exp(value / temperature) for value in row]
    return np.array(powers) / sum(powers)


def soft_cross_entropy(student: np.ndarray, teacher: np.ndarray, temperature: float) -> float:
    p, q = softmax(teacher, temperature), softmax(student, temperature)
    return -sum(float(p[i]) * math.log(q[i]) for i in range(len(p)))


def test_hidden_loss_is_the_mean_square_at_real_positions_summed_over_layers():
    student, teacher = [drawn(3, 7, 5, seed=i) for i in range(3)], [drawn(3, 7, 5, seed=10 + i) for i in range(5)]
    expected = 0.0
    for ours, theirs in ((0, 0), (1, 2), (2, 4)):  # the embeddings, and layers 1 and 3 of the teacher's four
        errors = [
            float((student[ours][row, at, unit] - teacher[theirs][row, at, unit]) ** 2)
            for row, length in enumerate(LENGTHS)
            for at in range(length)
            for unit in range(5)
        ]
        expected += sum(errors) / len(errors)
    got = hidden_loss(student, teacher, (1, 3), MASK, COUNTS.tokens)
    assert got.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_logits_loss_of_one_label(temperature):
    student, teacher = drawn(3, 4), drawn(3, 4, seed=1)
    rows = [soft_cross_entropy(s.numpy(), t.numpy(), temperature) for s, t in zip(student, teacher, strict=True)]
    got = logits_loss((student,), (teacher,), SINGLE, MASK, COUNTS, temperature)
    assert got.item() == pytest.approx(temperature**2 * sum(rows) / 3, rel=1e-5)


def test_logits_loss_of_tokens_counts_real_positions_only():
    student, teacher = drawn(3, 7, 4), drawn(3, 7, 4, seed=1)
    places = [(row, at) for row, length in enumerate(LENGTHS) for at in range(length)]
    expected = sum(soft_cross_entropy(student[p].numpy(), teacher[p].numpy(), 2.0) for p in places) / len(places)
    got = logits_loss((student,), (teacher,), TOKENS, MASK, COUNTS, 2.0)
    assert got.item() == pytest.approx(4 * expected, rel=1e-5)


def test_logits_loss_of_a_question_is_over_real_positions_and_the_mean_of_both_ends():
    student, teacher = (drawn(3, 7), drawn(3, 7, seed=1)), (drawn(3, 7, seed=2), drawn(3, 7, seed=3))
    total = 0.0
    for ours, theirs in zip(student, teacher, strict=True):
        for row, length in enumerate(LENGTHS):
            total += soft_cross_entropy(ours[row, :length].numpy(), theirs[row, :length].numpy(), 1.0)
    got = logits_loss(student, teacher, QUESTION, MASK, COUNTS)
    assert got.item() == pytest.approx(total / 2 / 3, rel=1e-5)


def test_logits_loss_of_several_labels_and_of_a_number():
    student, teacher = drawn(3, 4), drawn(3, 4, seed=1)
    expected = 0.0
    for s, t in zip(student.flatten().tolist(), teacher.flatten().tolist(), strict=True):
        p, q = 1 / (1 + math.exp(-t / 2)), 1 / (1 + math.exp(-s / 2))
        expected -= (p * math.log(q) + (1 - p) * math.log(1 - q)) / 4
    assert logits_loss((student,), (teacher,), MULTI, MASK, COUNTS, 2.0).item() == pytest.approx(4 * expected / 3)
    first, second = drawn(3, 1), drawn(3, 1, seed=1)
    squares = sum((a - b) ** 2 for a, b in zip(first.flatten().tolist(), second.flatten().tolist(), strict=True))
    assert logits_loss((first,), (second,), REGRESSION, MASK, COUNTS).item() == pytest.approx(squares / 3, rel=1e-5)


@pytest.mark.parametrize("kind", [SINGLE, MULTI, TOKENS, QUESTION, REGRESSION])
def test_a_student_that_answers_as_its_teacher_has_no_slope(kind):
    shape = {TOKENS: (3, 7, 4), QUESTION: (3, 7), REGRESSION: (3, 1)}.get(kind, (3, 4))
    outputs = tuple(drawn(*shape, seed=i).requires_grad_() for i in range(2 if kind == QUESTION else 1))
    loss = logits_loss(outputs, tuple(output.detach() for output in outputs), kind, MASK, COUNTS, 1.7)
    for slope in torch.autograd.grad(loss, outputs):
        assert slope.abs().max() < 1e-6


def labels_for(head: str, problem: str | None) -> dict[str, torch.Tensor]:
    if head == "QuestionAnswering":
        return {"start_positions": torch.tensor([2, 1, 0]), "end_positions": torch.tensor([5, 3, 0])}
    if head == "TokenClassification":
        labels = torch.randint(0, 3, (3, 12), generator=torch.Generator().manual_seed(0))
        return {"labels": labels.masked_fill(torch.arange(12) % 3 == 0, -100)}
    if problem == "regression":
        return {"labels": torch.tensor([0.5, -1.0, 2.0])}
    return {
        "labels": torch.tensor([0, 2, 1]) if problem == SINGLE else torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 1]])
    }


@pytest.mark.parametrize(
    ("head", "problem", "kind"),
    [
        ("SequenceClassification", SINGLE, SINGLE),
        ("SequenceClassification", MULTI, MULTI),
        ("SequenceClassification", REGRESSION, REGRESSION),
        ("TokenClassification", None, TOKENS),
        ("QuestionAnswering", None, QUESTION),
    ],
)
def test_label_loss_is_that_of_transformers(prunable, head, problem, kind):
    settings: dict[str, Any] = {"problem_type": problem} if problem else {}
    model = load_module(prunable("bert", head, labels=1 if problem == REGRESSION else 3, **settings))
    batch = {**batch_for(model), **labels_for(head, problem)}
    with torch.no_grad():
        output = model(**batch)
    counts = Counts.of([batch])
    got = label_loss(as_tuple(output, output_names(model)), batch, kind, counts)
    assert got.item() == pytest.approx(output.loss.item(), rel=1e-5)
    summed = label_loss(as_tuple(output, output_names(model)), batch, kind, ONE)
    assert summed.item() == pytest.approx(got.item() * (counts.labelled if kind == TOKENS else 3), rel=1e-5)


def test_counts_of_parts_add_up():
    batch = {"input_ids": torch.zeros(3, 7), "attention_mask": MASK, "labels": torch.tensor([[0, -100]] * 3)}
    assert Counts.of([batch, batch]) == Counts(6.0, 24.0, 6.0, 6.0)
    assert Counts.of([{"input_ids": torch.zeros(2, 5)}]) == Counts(2.0, 10.0, 2.0, 0.0)


@pytest.mark.parametrize(
    ("head", "kind"),
    [("SequenceClassification", SINGLE), ("TokenClassification", TOKENS), ("QuestionAnswering", QUESTION)],
)
def test_a_criterion_takes_the_place_of_the_tasks_loss(prunable, head, kind):
    """Called with (logits, labels), of a question two tuples; a mean, of which parts make up the whole."""
    model = load_module(prunable("bert", head, labels=3))
    batch = {**batch_for(model), **labels_for(head, SINGLE)}
    seen = []

    def criterion(logits: Any, labels: Any) -> torch.Tensor:
        seen.append(logits)
        if kind == QUESTION:
            return sum(torch.nn.functional.cross_entropy(*pair) for pair in zip(logits, labels, strict=True)) / 2
        return torch.nn.functional.cross_entropy(logits.reshape(-1, 3), labels.reshape(-1))

    with torch.no_grad():
        output = model(**batch)
    outputs, counts = as_tuple(output, output_names(model)), Counts.of([batch])
    loss = label_loss(outputs, batch, kind, counts, criterion)
    assert loss.item() == pytest.approx(output.loss.item(), rel=1e-5)
    assert isinstance(seen[0], tuple) == (kind == QUESTION)
    twice = Counts(counts.rows, counts.tokens, 2 * counts.labelled_rows, counts.labelled)
    assert label_loss(outputs, batch, kind, twice, criterion).item() == pytest.approx(loss.item() / 2)
    assert label_loss(outputs, batch, kind, ONE, criterion).item() == pytest.approx(3 * loss.item())
