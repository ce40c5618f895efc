"""Training a pruned and repaired model on: nearer to its teacher on rows that no step saw, or as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tersely.engines.torch import input_names
from tersely.models.carve import Shape, carve, shape_of
from tersely.models.families import find
from tersely.models.folder import open_folder
from tersely.models.torch_folder import load_module
from tersely.prune import TrainingRun
from tersely.prune.distil_shape import RATES, SCORINGS, _defaults, _Pace, distil_shape
from tersely.prune.repair import repair
from tersely.prune.sample import draw
from tersely.training.batches import Collator, FeatureDataset
from tersely.training.losses import LossSettings
from tersely.training.model_folder import save_carved
from widths import examples, flipped, learnt

QUICK: dict[str, Any] = {"num_train_epochs": 2, "save_steps": 6, "per_device_train_batch_size": 8}

pytestmark = pytest.mark.slow  # its fixture trains


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return learnt(tmp_path_factory.mktemp("learnt"), hidden=64)


@pytest.fixture(scope="module")
def cut(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Uneven, with a layer that has no attention; repaired by few rows, so that something is left to learn."""
    full = model.load().eval()
    family = find(full)
    shape = shape_of(full, family)
    smaller = carve(full, family, Shape((1, 0), (8, shape.ffn[1] // 2), shape.layers)).eval()
    repair(full, smaller, family, draw(model, full, examples(model, "train")[:4], 0))
    folder = tmp_path_factory.mktemp("cut") / "model"
    save_carved(smaller, folder, source=model.path)
    return open_folder(folder)


def run_of(cut: Any, model: Any, work: Path, **training: Any) -> TrainingRun:
    return TrainingRun(cut, examples(model, "train"), examples(model, "dev"), work, {**QUICK, **training})


def learn(model: Any, **losses: Any) -> LossSettings:
    return LossSettings(**{"distill_hidden": 0.1, **losses}, teacher=model.path)


def divergence(model: Any, folder: Path, rows: list[Any]) -> float:
    """Mean Kullback-Leibler divergence of a folder's answers from the model's, by torch's own function."""
    teacher, student = model.load().eval(), load_module(folder).eval()
    dataset = FeatureDataset(model.task, rows, model.encoder, labelled=False)
    batch = Collator(model.encoder, input_names(teacher))([dataset[i] for i in range(len(dataset))])
    with torch.no_grad():
        theirs, ours = teacher(**batch).logits, student(**batch).logits
    found = torch.nn.functional.kl_div(ours.log_softmax(-1), theirs.softmax(-1), reduction="batchmean")
    return float(found)


@pytest.fixture(scope="module")
def done(cut: Any, model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    work = tmp_path_factory.mktemp("run") / "work"
    return work, distil_shape(run_of(cut, model, work), learn(model))


def test_it_comes_nearer_by_as_much_as_it_says(cut: Any, model: Any, done: Any) -> None:
    _, found = done
    assert found.rate in RATES
    assert found.step > 0
    assert found.distance < found.start
    rows = examples(model, "train")
    count = round(0.1 * len(rows))
    held = [rows[i] for i in sorted(np.random.default_rng(42).permutation(len(rows))[:count])]
    assert found.start == pytest.approx(divergence(model, cut.path, held), rel=1e-3, abs=1e-6)
    assert found.distance == pytest.approx(divergence(model, found.folder, held), rel=1e-3, abs=1e-6)


def test_its_shape_stays(cut: Any, done: Any) -> None:
    assert load_module(done[1].folder).config.tersely_shape == load_module(cut.path).config.tersely_shape


def test_a_training_that_only_does_harm_gives_what_it_began_with(cut: Any, model: Any, tmp_path: Path) -> None:
    found = distil_shape(run_of(cut, model, tmp_path / "work", learning_rate=1.0, max_steps=6), learn(model))
    assert (found.step, found.rate) == (0, 1.0)
    assert found.distance == found.start
    before, after = load_module(cut.path).state_dict(), load_module(found.folder).state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_labels_do_not_matter_unless_their_loss_is_asked_for(cut: Any, model: Any, done: Any, tmp_path: Path) -> None:
    run = replace(run_of(cut, model, tmp_path / "work"), train=flipped(examples(model, "train")))
    found = distil_shape(run, learn(model))
    assert replace(found, folder=done[1].folder) == done[1]
    assert (found.folder / "model.safetensors").read_bytes() == (done[1].folder / "model.safetensors").read_bytes()
    with_labels = distil_shape(replace(run, work=tmp_path / "other"), learn(model, label_loss=1.0))
    assert with_labels.distance != found.distance


def test_a_finished_training_is_given_back_at_once(cut: Any, model: Any, done: Any) -> None:
    work, first = done
    stamp = (first.folder / "model.safetensors").stat().st_mtime_ns
    assert distil_shape(run_of(cut, model, work), learn(model)) == first
    assert (first.folder / "model.safetensors").stat().st_mtime_ns == stamp


def test_it_ends_when_time_is_up_and_keeps_the_nearest(cut: Any, model: Any, tmp_path: Path) -> None:
    run = replace(run_of(cut, model, tmp_path / "work", num_train_epochs=10_000.0), until=0.0)
    found = distil_shape(run, learn(model))
    assert found.steps == 1  # no time was left for more after the looks
    assert found.distance <= found.start


def test_it_ends_when_it_comes_no_nearer(cut: Any, model: Any, tmp_path: Path) -> None:
    training = {"learning_rate": 1e-30, "max_steps": 40, "save_steps": 2}
    found = distil_shape(run_of(cut, model, tmp_path / "work", **training), learn(model))
    checkpoints = (tmp_path / "work").glob("step-*")
    assert found.distance == found.start
    assert {path.name for path in checkpoints} <= {f"step-{step}" for step in range(0, 18, 2)}


def test_a_limited_time_is_for_steps_and_a_tenth_of_it_for_scorings() -> None:
    pace = _Pace(steps=60, trained=30.0, scored=2.0)
    steps, scorings = pace.within(600.0, 10_000)
    assert scorings == 30  # 60 of 600 seconds
    assert steps == (600 - 60) * 2
    assert pace.within(600.0, 500) == (500, 30)
    assert pace.within(100_000.0, 10_000) == (10_000, SCORINGS)
    assert pace.within(-5.0, 10_000) == (1, 1)
    assert _Pace().within(600.0, 500) == (500, SCORINGS)  # nothing was timed


def test_what_is_set_is_not_a_default(cut: Any, model: Any, tmp_path: Path) -> None:
    run = run_of(cut, model, tmp_path)
    assert "num_train_epochs" not in _defaults(run)
    limited = _defaults(replace(run, until=1.0))
    assert limited["num_train_epochs"] > 3
    assert 0 < limited["warmup_steps"] < 1
    assert "warmup_steps" not in _defaults(replace(run, training={"warmup_ratio": 0.1}))
    assert "num_train_epochs" not in _defaults(replace(run, until=1.0, training={"max_steps": 5}))
    assert "bf16" not in _defaults(replace(run, training={"fp16": True}))
