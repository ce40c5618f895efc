"""Training for INT8 as a whole: it learns, what it gives is what the engines compute, and a kill loses nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from fake_quantized import Subject, graph_of
from learnable import rows, single
from tersely import engines
from tersely.errors import UserError
from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.graphs.write_qdq import write_qdq
from tersely.measure.score import score
from tersely.models.torch_folder import load_module
from tersely.qat import QatSettings, Trained, TrainingRun, train_int8
from tersely.qat import training as room
from tersely.qat.training import NAME
from tersely.quant_map import QuantMap
from tersely.quantize.weights import unsafe_pairs
from tersely.runtime import Predictor
from widths import examples, learnt, weights_in

TRAINING: dict[str, Any] = {"learning_rate": 1e-3, "max_steps": 8, "save_steps": 4, "per_device_train_batch_size": 8}
QUICK = QatSettings(algo_list=("min_max",))


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    model = learnt(tmp_path_factory.mktemp("learnt"), hidden=64)
    texts = tuple(row["text"] for row in rows(single, 32, seed=5))
    return Subject.of(model.path, texts)


def train(subject: Subject, work: Path, settings: QatSettings = QUICK, **training: Any) -> Trained:
    rows = [examples(subject.folder, part) for part in ("train", "dev")]
    run = TrainingRun(subject.folder, *rows, work, {**TRAINING, **training}, seed=7)
    return train_int8(run, subject.calibrated, settings)


@pytest.fixture(scope="module")
def trained(subject, tmp_path_factory):
    return train(subject, tmp_path_factory.mktemp("trained") / "work")


@pytest.mark.slow
def test_what_is_kept_is_what_the_engines_compute(subject, trained, tmp_path):
    proto = graph_of(load_module(trained.folder))
    onnx.save_model(write_onnxruntime(proto, trained.quant_map), tmp_path / "fused.onnx")
    onnx.save_model(write_qdq(proto, trained.quant_map, signed=False), tmp_path / "standard.onnx")
    dev = examples(subject.folder, "dev")
    for engine, file in (("onnxruntime", "fused.onnx"), ("openvino", "standard.onnx")):
        runner = engines.load(engine, tmp_path / file, precision="int8")
        found = score(Predictor(subject.folder.task, subject.folder.encoder, runner), dev)
        assert found.value == pytest.approx(trained.score.value, abs=1 / len(dev))


def test_integers_are_safe_and_weights_have_moved(subject, tmp_path):
    trainer = trainer_of(subject, tmp_path, QUICK)
    layers = trainer.quantized.quant_map().layers
    assert layers
    assert not any(unsafe_pairs(layer.integers) for layer in layers.values())
    before, after = weights_in(subject.folder.path), trainer.quantized.plain().state_dict()
    assert all(not np.array_equal(before[name], after[name].numpy()) for name in layers)


def test_a_second_call_gives_the_same_at_once(subject, trained, monkeypatch):
    monkeypatch.setattr(room, "Int8Trainer", None)
    again = train(subject, trained.folder.parent.parent)
    assert (again.folder, again.step, again.score.value) == (trained.folder, trained.step, trained.score.value)
    assert not list(trained.folder.parent.parent.glob("checkpoint-*"))


@pytest.mark.slow
def test_a_training_that_was_cut_off_goes_on_to_the_same_result(subject, trained, tmp_path, monkeypatch):
    class Cut(Exception):
        pass

    class Trainer(room.Int8Trainer):
        def _save_checkpoint(self, *inputs, **named):
            super()._save_checkpoint(*inputs, **named)
            raise Cut

    undisturbed = trainer_of(subject, tmp_path / "whole", QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(room, "Int8Trainer", Trainer)
        with pytest.raises(Cut):
            train(subject, tmp_path / "work")
    assert (tmp_path / "work" / "checkpoint-4").is_dir()
    again = trainer_of(subject, tmp_path / "work", QUICK)
    ours, theirs = undisturbed.quantized.plain().state_dict(), again.quantized.plain().state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    others = again.quantized.quant_map().layers
    for name, layer in undisturbed.quantized.quant_map().layers.items():
        assert np.array_equal(layer.integers, others[name].integers)
        assert layer.range == others[name].range
    assert undisturbed.keep.best[NAME].step == again.keep.best[NAME].step == trained.step
    assert undisturbed.keep.best[NAME].moved == again.keep.best[NAME].moved


def test_a_training_that_does_harm_gives_what_it_began_with(subject, tmp_path):
    found = train(subject, tmp_path / "work", learning_rate=0.3, max_steps=3, save_steps=1)
    assert found.step == 0
    start = QuantMap.load(tmp_path / "work" / "start.npz")
    assert found.quant_map.layers.keys() == start.layers.keys() != set()
    for name, layer in found.quant_map.layers.items():
        apart = layer.integers.astype(int) - start.layers[name].integers
        assert (apart != 0).mean() < 0.01, "only a few may fall to the other side of a tie"
        assert layer.range == start.layers[name].range
    before, after = weights_in(subject.folder.path), weights_in(found.folder)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def trainer_of(subject: Subject, work: Path, settings: QatSettings, **training: Any) -> Any:
    """The trainer after its training."""
    made: list[Any] = []

    class Kept(room.Int8Trainer):
        def __init__(self, **parts: Any) -> None:
            super().__init__(**parts)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "Int8Trainer", Kept)
        train(subject, work, settings, **training)
    return made[0]


def test_clips_are_in_the_optimizer_with_a_rate_of_their_own_and_move(subject, tmp_path):
    trainer = trainer_of(subject, tmp_path, QUICK, weight_decay=0.0)
    *others, clips = trainer.optimizer.param_groups
    assert clips["initial_lr"] == pytest.approx(20 * others[0]["initial_lr"])
    assert clips["weight_decay"] == 0.0
    shares = [clip.item() for clip in trainer.quantized.clips()]
    assert {id(clip) for clip in clips["params"]} == {id(clip) for clip in trainer.quantized.clips()}
    assert sum(share != 1 for share in shares) >= len(shares) / 2


def test_without_pact_there_are_no_clips_and_without_distillation_no_teacher_runs(subject, tmp_path):
    settings = replace(QUICK, use_pact=False, distill_logits=0.0)
    trainer = trainer_of(subject, tmp_path, settings, max_steps=2)
    assert trainer.quantized.clips() == []
    assert len(trainer.optimizer.param_groups) == 2


@pytest.mark.slow
def test_training_brings_answers_back_that_rounding_takes(subject, tmp_path):
    coarse = replace(QUICK, weight_quantize_type="abs_max", smooth="off", distill_hidden=1.0)
    trainer = trainer_of(subject, tmp_path, coarse, max_steps=40, save_steps=20, logging_steps=5)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_accumulated_parts_are_one_larger_batch(subject, tmp_path):
    plain = {"max_steps": 3, "learning_rate": 0.02, "optim": "sgd"}
    at_once = trainer_of(subject, tmp_path / "whole", QUICK, **plain)
    parts = trainer_of(
        subject, tmp_path / "parts", QUICK, **plain, per_device_train_batch_size=2, gradient_accumulation_steps=4
    )
    for quantizer, other in zip(at_once.quantized.quantizers, parts.quantized.quantizers, strict=True):
        assert quantizer.range().high == pytest.approx(other.range().high, rel=1e-3)
        assert int(quantizer.steps) == int(other.steps) == 3


@pytest.mark.slow
def test_ranges_at_run_time_give_layers_without_range(subject, tmp_path):
    found = train(subject, tmp_path, replace(QUICK, activation_quantize_type="abs_max"), max_steps=2)
    assert {layer.range for layer in found.quant_map.layers.values()} == {None}


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"gradient_checkpointing": True}, "no effect on quantization-aware training"),
        ({"activation_checkpointing": True}, "no effect on quantization-aware training"),
        ({"save_strategy": "epoch"}, "must be steps"),
    ],
)
def test_options_without_effect_are_refused(subject, tmp_path, training, said):
    with pytest.raises(UserError, match=said):
        train(subject, tmp_path / "work", **training)


def test_the_models_own_weights_are_untouched(subject, trained):
    assert torch.equal(
        load_module(subject.folder.path).bert.pooler.dense.weight, subject.model.bert.pooler.dense.weight
    )
