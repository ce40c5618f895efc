"""Training of all widths at once: what a step does, that it learns, and that nothing of the Trainer is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from learnable import LENGTH, conll, question, rows, single, squad, tagged, tiny
from models import EVERY_FAMILY, HEADS
from tersely import data, engines
from tersely.measure.score import answer
from tersely.models.folder import open_folder
from tersely.models.torch_folder import load_module
from tersely.prune import PruneSettings, prune_only
from tersely.runtime import Predictor
from tersely.tasks import Columns
from widths import examples, learnt, trainer_for, weights

TWO = PruneSettings(width_mult_list="1/2 1/4")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return learnt(tmp_path_factory.mktemp("learnt"))


def run(model: Any, work: Path, settings: PruneSettings = TWO, **training: Any) -> Any:
    trainer = trainer_for(model, work, examples(model, "train"), examples(model, "dev"), settings, **training)
    trainer.train()
    return trainer


def test_teacher_runs_once_a_batch_in_eval_mode_however_many_widths(model, tmp_path):
    trainer = trainer_for(model, tmp_path, examples(model, "train"), examples(model, "dev"), TWO, max_steps=3)
    seen = []
    trainer.teacher.module.register_forward_hook(lambda part, *_: seen.append((part.training, torch.is_grad_enabled())))
    trainer.train()
    assert seen == [(False, False)] * 3
    assert all(weight.grad is None for weight in trainer.teacher.module.parameters())


def test_gradients_are_those_of_the_sum_over_widths(model, tmp_path):
    apart = []
    for widths in ("1/2", "1/4", "1/2 1/4"):
        trainer = trainer_for(
            model, tmp_path, examples(model, "train"), [], replace(TWO, width_mult_list=widths), dropout=False
        )
        batch = next(iter(trainer.get_train_dataloader()))
        trainer.get_batch_samples(iter([batch]), 1, torch.device("cpu"))
        trainer.training_step(trainer.elastic, batch)
        apart.append(torch.cat([w.grad.flatten() for w in trainer.elastic.parameters() if w.grad is not None]))
    assert torch.allclose(apart[0] + apart[1], apart[2], atol=1e-6)
    assert apart[2].abs().max() > 1e-4


def test_training_lowers_the_loss(model, tmp_path):
    trainer = run(model, tmp_path, num_train_epochs=4, learning_rate=2e-3, logging_steps=7)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.01


@pytest.mark.slow
def test_training_beats_pruning_alone(prunable, tmp_path):
    # Wild weights, so that every head matters; the rows' labels are the model's own answers.
    folder = open_folder(prunable())
    texts = [row["text"] for row in rows(single, 160)]
    train, dev = folder.task.examples(texts[:120]), folder.task.examples(texts[120:])
    settings = PruneSettings(width_mult_list="1/2 1/3", importance="teacher", distill_hidden=1.0)
    trainer = trainer_for(
        folder, tmp_path, train, dev, settings, ordered=True, num_train_epochs=8, learning_rate=2e-3, save_strategy="no"
    )
    reference, alone = answers(folder, load_module(folder.path), dev), prune_only(folder, train, settings)
    trainer.train()
    for name, pruned in alone.items():
        found = answers(folder, trainer.elastic.carved(name), dev)
        before, after = (change(reference, other) for other in (answers(folder, pruned, dev), found))
        assert after < 0.7 * before
        assert np.mean(found.argmax(1) == reference.argmax(1)) > 0.6


def answers(folder: Any, model: Any, examples: list[Any]) -> np.ndarray:
    predictor = Predictor(folder.task, folder.encoder, engines.load("torch", model))
    return np.stack(answer(predictor, examples).logits)


def change(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs((left - right) - (left - right).mean(1, keepdims=True)).mean())


def test_accumulated_parts_are_one_larger_batch(model, tmp_path):
    settings = replace(TWO, label_loss=0.5)
    plain = {"max_steps": 4, "learning_rate": 0.05, "optim": "sgd", "dropout": False, "save_strategy": "no"}
    at_once = run(model, tmp_path / "whole", settings, **plain, per_device_train_batch_size=8)
    parts = run(
        model, tmp_path / "parts", settings, **plain, per_device_train_batch_size=2, gradient_accumulation_steps=4
    )
    before = weights(load_module(model.path))
    moved = (weights(at_once.elastic.model) - before).abs().max()
    assert (weights(at_once.elastic.model) - weights(parts.elastic.model)).abs().max() < 1e-3 * moved


def test_callbacks_schedule_and_clipping_are_the_trainers(model, tmp_path):
    rates: list[float] = []

    class Rates(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            rates.append(kwargs["lr_scheduler"].get_last_lr()[0])

    trainer = trainer_for(
        model, tmp_path, examples(model, "train"), examples(model, "dev"), TWO, max_steps=4, learning_rate=1e-3,
        max_grad_norm=1e-3, logging_steps=1, lr_scheduler_type="linear", save_strategy="no",
    )  # fmt: skip
    trainer.add_callback(Rates())
    norms: list[float] = []
    step = trainer.create_optimizer().step
    trainer.optimizer.step = lambda *_: (norms.append(norm_of(trainer)), step())[1]
    trainer.train()
    assert rates == pytest.approx([7.5e-4, 5e-4, 2.5e-4, 0])
    assert max(norms) <= 1.01e-3


def norm_of(trainer: Any) -> float:
    grads = [weight.grad.flatten() for weight in trainer.elastic.parameters() if weight.grad is not None]
    return float(torch.cat(grads).norm())


def test_bf16_trains_and_scores(model, tmp_path):
    trainer = run(model, tmp_path, max_steps=2, bf16=True, save_strategy="no")
    scored = trainer.evaluate()
    assert set(trainer.keep.best) == {"width_mult_0.5", "width_mult_0.25"}
    assert scored["eval_width_mult_0.5_accuracy"] > 0.5


@pytest.mark.slow
def test_augmentation_is_seen_by_teacher_and_student_and_is_the_same_by_seed(model, tmp_path):
    drawn = []

    def twice(batch):
        drawn.append(torch.rand(1).item())
        return {name: torch.cat([tensor, tensor]) for name, tensor in batch.items()}

    seen: list[int] = []
    for place in ("one", "two"):
        trainer = trainer_for(
            model, tmp_path / place, examples(model, "train"), [], replace(TWO, augment=twice), max_steps=2,
            save_strategy="no",
        )  # fmt: skip
        trainer.teacher.module.register_forward_pre_hook(
            lambda _, __, named: seen.append(len(named["input_ids"])), with_kwargs=True
        )
        trainer.train()
        assert trainer.counts.rows == 16
    assert seen == [16] * 4
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]


@pytest.mark.slow
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_family_trains_in_width_and_depth(prunable, tmp_path, family):
    folder = open_folder(prunable(family))
    train = folder.task.examples(["a quiet river", "the old dog", "paris is dark", "no fox"])
    labelled = [replace(example, gold=number % 3) for number, example in enumerate(train)]
    settings = PruneSettings(width_mult_list="1/2", depth_mult_list="1 2/3", label_loss=1.0)
    trainer = trainer_for(folder, tmp_path, labelled, labelled, settings, max_steps=2, save_strategy="no")
    before = weights(trainer.elastic.model)
    trainer.train()
    assert torch.isfinite(weights(trainer.elastic.model)).all()
    assert not torch.equal(weights(trainer.elastic.model), before)
    shapes = set(trainer.elastic.shapes)
    assert {f"eval_{shape}_accuracy" for shape in shapes} <= set(trainer.evaluate())
    assert len(shapes) == 2
    assert set(trainer.keep.best) == shapes


@pytest.mark.parametrize(("head", "make"), [(HEADS[1], tagged("IOB2")), (HEADS[2], question)])
def test_other_tasks_train(tmp_path, head, make):
    names = ("O", "B-LOC", "B-PER", "I-PER")
    named = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}, "labels": 4}
    folder = open_folder(tiny(tmp_path / "model", head, layers=2, **(named if head == HEADS[1] else {})))
    folder = replace(folder, task=replace(folder.task, max_seq_length=LENGTH))
    write, suffix = (conll, "txt") if head == HEADS[1] else (squad, "json")
    found = folder.task.read(data.read(write(tmp_path / f"rows.{suffix}", rows(make, 40))), Columns(), labelled=True)
    settings = PruneSettings(width_mult_list="1/2", label_loss=1.0)
    trainer = trainer_for(folder, tmp_path / "work", found, found, settings, max_steps=2, save_strategy="no")
    assert trainer.kind == {HEADS[1]: "tokens", HEADS[2]: "span"}[head]
    trainer.train()
    trainer.evaluate()
    assert list(trainer.keep.best) == ["width_mult_0.5"]
    assert torch.isfinite(weights(trainer.elastic.model)).all()


def test_a_criterion_of_the_users_decides_importance_and_the_label_loss(model, tmp_path):
    """One that is the task's own changes nothing; one that asks for another answer teaches that."""
    ours = torch.nn.CrossEntropyLoss()
    task_order, own_order = (
        prune_only(model, examples(model, "train"), replace(TWO, criterion=criterion))["width_mult_0.5"].state_dict()
        for criterion in (None, ours)
    )
    assert all(torch.equal(task_order[name], own_order[name]) for name in task_order)

    def first_label(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, torch.zeros_like(labels))

    settings = PruneSettings("1/2", distill_hidden=0, distill_logits=0, label_loss=1, criterion=first_label)
    trainer = run(model, tmp_path, settings, max_steps=30, learning_rate=1e-3)
    predictor = Predictor(model.task, model.encoder, engines.load("torch", trainer.elastic.carved("width_mult_0.5")))
    assert {answered.label for answered in answer(predictor, examples(model, "dev")).by_row} == {model.task.labels[0]}


@pytest.mark.parametrize("distils", [True, False])
def test_dropout_is_off_where_a_teacher_is_followed(model, tmp_path, distils):
    """The same batch twice gives the same loss; labels alone are learnt with the model's own dropout."""
    settings = replace(TWO, **({} if distils else {"distill_hidden": 0, "distill_logits": 0, "label_loss": 1}))
    trainer = trainer_for(model, tmp_path, examples(model, "train"), [], settings)
    batch = next(iter(trainer.get_train_dataloader()))
    losses = {float(trainer.training_step(trainer.elastic, batch)) for _ in range(3)}
    assert (len(losses) == 1) == distils
