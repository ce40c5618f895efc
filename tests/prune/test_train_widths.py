"""The story of width pruning: what comes out, what stays as it was, what is refused before any work."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models import build
from tersely import engines
from tersely.errors import Failure, UserError
from tersely.measure.score import score
from tersely.models.carve import carve, locate
from tersely.models.carve.places import HEADS, NEURONS
from tersely.models.families import find
from tersely.models.folder import open_folder
from tersely.models.torch_folder import load_module
from tersely.prune import PruneSettings, TrainingRun, prune_only, train_widths
from tersely.prune.importance import ordered_model
from tersely.prune.sample import draw
from tersely.runtime import Predictor
from tersely.training.arguments import DEFAULTS
from widths import TRAINING, examples, flipped, learnt, weights_in


class Recorded:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.notes: list[str] = []
        self.lines: list[str] = []

    @contextmanager
    def track(self, title: str, total: int):
        self.titles.append(f"{title}: {total}")
        yield lambda count=1, note="": self.notes.append(note)

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return learnt(tmp_path_factory.mktemp("learnt"), seed=3)


@pytest.fixture(scope="module")
def done(model, tmp_path_factory):
    """One run for the tests that look at it: its folder before, what it gave, the progress that it recorded."""
    work, recorded = tmp_path_factory.mktemp("run") / "work", Recorded()
    before, state = digest(model.path), torch.get_rng_state()
    settings = PruneSettings(width_mult_list="1/2 0.49 1/4")
    made = train_widths(of(model, work, TRAINING), settings, progress=recorded)
    assert torch.equal(torch.get_rng_state(), state)
    return {"work": work, "settings": settings, "made": made, "progress": recorded, "before": before}


def of(model: Any, work: Path, training: dict[str, Any] | None = None) -> TrainingRun:
    return TrainingRun(model, examples(model, "train"), examples(model, "dev"), work, training or {})


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def distance(full: Any, other: Any, sample: Any) -> float:
    """Mean |Δlogit|."""
    with torch.no_grad():
        moved = [(full(**inputs).logits - other(**inputs).logits).abs() for inputs in sample.held_out]
    return float(torch.cat(moved).mean())


def test_each_width_is_a_smaller_model_that_scores_what_is_said(model, done):
    made = done["made"]
    assert [width.name for width in made] == ["width_mult_0.5", "width_mult_0.25"]
    assert [width.width for width in made] == [Fraction(1, 2), Fraction(1, 4)]
    sizes = [
        (folder / "model.safetensors").stat().st_size for folder in (model.path, *(width.folder for width in made))
    ]
    assert sizes[0] > sizes[1] > sizes[2]
    for width in made:
        opened = open_folder(width.folder)
        scored = score(
            Predictor(opened.task, opened.encoder, engines.load("torch", load_module(width.folder))),
            examples(model, "dev"),
        )
        assert scored.metrics == width.score.metrics
        assert (scored.interval, scored.rows) == (width.score.interval, width.score.rows)
        assert load_module(width.folder).config.tersely_shape["heads"] == list(width.shape.heads)


def test_widths_of_one_step_are_slices_of_one_network(done):
    half, quarter = done["made"]
    assert half.step == quarter.step  # all score 1 at the end, and of equals the later is kept
    wide, narrow = weights_in(half.folder), weights_in(quarter.folder)
    name = "bert.encoder.layer.0.attention.self.query.weight"
    assert np.array_equal(wide[name][: len(narrow[name])], narrow[name])
    assert np.array_equal(wide["classifier.weight"], narrow["classifier.weight"])


def test_a_width_that_has_not_learnt_is_repaired(model, tmp_path):
    """At a rate of nearly 0 the best is the width as it was cut, but for its output projections."""
    settings = PruneSettings(width_mult_list="1/2")
    run = of(model, tmp_path / "work", {"max_steps": 1, "learning_rate": 1e-12})
    (width,) = train_widths(run, settings)
    assert width.step == 2
    full, repaired = load_module(model.path).eval(), load_module(width.folder).eval()
    family = find(full)
    cut = carve(ordered_model(full, family, model, run.train, settings, seed=run.seed), family, width.shape).eval()
    changed = {
        name.rpartition(".")[0]
        for name, weight in cut.state_dict().items()
        if not torch.allclose(weight, repaired.state_dict()[name], atol=1e-6)
    }
    outputs = {name for unit in (HEADS, NEURONS) for name in locate(cut, family).outputs(unit)}
    assert changed == outputs
    rows = draw(model, full, examples(model, "dev"), 0)
    moved = {name: distance(full, other, rows) for name, other in (("cut", cut), ("repaired", repaired))}
    assert moved["repaired"] < 0.5 * moved["cut"]


def test_the_models_folder_is_unchanged(model, done):
    assert digest(model.path) == done["before"]


def test_progress_tells_steps_widths_loss_and_scores(done):
    recorded = done["progress"]
    assert recorded.titles[:3] == ["dry run: 2", "importance: 110", "train width_mult_0.5, width_mult_0.25: 14"]
    assert [title.split(":")[0] for title in recorded.titles[3:]] == ["repair", "scoring"] * 2
    assert recorded.lines == ["width_mult_0.49 has the shape of width_mult_0.5: made once."]
    last = [note for note in recorded.notes if "loss" in note][-1]
    assert "width_mult_0.25 " in last


def test_a_finished_training_is_given_back_at_once(model, done):
    recorded = Recorded()
    again = train_widths(of(model, done["work"], TRAINING), done["settings"], progress=recorded)
    assert again == done["made"]
    assert recorded.titles == []
    left = sorted(path.name for path in done["work"].iterdir())
    assert left == ["result.json", "run.txt", f"step-{again[0].step}"]


def test_pruning_alone_takes_the_most_important_or_the_first(model):
    settings = PruneSettings(width_mult_list="1/2")
    ordered = prune_only(model, examples(model, "train"), settings)["width_mult_0.5"]
    first = prune_only(model, examples(model, "train"), replace(settings, reorder=False))["width_mult_0.5"]
    name = "bert.encoder.layer.0.attention.self.query.weight"
    full = load_module(model.path).state_dict()[name]
    assert torch.equal(first.state_dict()[name], full[: len(full) // 2])
    assert not torch.equal(ordered.state_dict()[name], first.state_dict()[name])


def test_a_short_run_that_scores_zero_gives_its_last_step(model, tmp_path):
    settings = PruneSettings(width_mult_list="1/2", importance="teacher")
    unlabelled = [replace(example, gold=None) for example in examples(model, "train")]
    training = {"max_steps": 2, "learning_rate": 1e-6}
    (only,) = train_widths(TrainingRun(model, unlabelled, flipped(right(model)), tmp_path / "work", training), settings)
    assert (only.step, only.score.value) == (3, 0.0)  # the repair counts as a step
    assert load_module(only.folder).config.tersely_shape["heads"] == list(only.shape.heads)
    assert DEFAULTS["save_steps"] > only.step


def test_a_disk_that_fills_up_while_a_best_is_written_loses_no_training(model, tmp_path, monkeypatch):
    call = of(model, tmp_path / "work", TRAINING), PruneSettings("1/2")

    def copy_until_full(file: Path, place: Path) -> None:
        if "step-12" in str(place):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        place.write_bytes(file.read_bytes())

    with monkeypatch.context() as full:
        full.setattr(shutil, "copyfile", copy_until_full)  # the tokenizer goes along with every best
        with pytest.raises(Failure, match="No space left on device"):
            train_widths(*call)
    recorded = Recorded()
    (only,) = train_widths(*call, progress=recorded)
    assert recorded.lines == ["An earlier run was interrupted; going on from checkpoint 6."]
    assert only.step in (14, 15)  # the last, or its repair, which counts as a step


def right(model: Any) -> list[Any]:
    """Dev rows that the half of it answers rightly before training."""
    dev = examples(model, "dev")
    carved = prune_only(model, examples(model, "train"), PruneSettings(width_mult_list="1/2", importance="teacher"))[
        "width_mult_0.5"
    ]
    scored = score(Predictor(model.task, model.encoder, engines.load("torch", carved)), dev, resamples=0)
    said = [model.task.labels.index(answer.label) for answer in scored.answers.by_row]
    return [example for example, label in zip(dev, said, strict=True) if example.gold == label]


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "no train rows": ({"train": []}, "There are no training rows to prune with"),
    "no eval rows": ({"evaluation": []}, "There are no eval rows to choose widths by"),
    "dtype": ({"input_dtype": "int8"}, "'input_dtype' option must be int64 or int32. Got 'int8'"),
    "half a head": ({"settings": PruneSettings(width_mult_list="1/10")}, "less than half a head"),
    **{
        name: ({"training": {name: True}}, f"'{name}' option has no effect")
        for name in ("gradient_checkpointing", "activation_checkpointing")
    },
    "smoothing": ({"training": {"label_smoothing_factor": 0.1}}, "'label_smoothing_factor' option has no effect"),
    "by epoch": ({"training": {"save_strategy": "epoch"}}, "'save_strategy' option must be steps"),
    "batch": (
        {"training": {"per_device_train_batch_size": 0}},
        "'per_device_train_batch_size' option must be at least",
    ),
    "best": ({"training": {"load_best_model_at_end": True}}, "'load_best_model_at_end' option has no effect"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_is_refused_before_any_work(model, tmp_path, case):
    changes, message = REFUSALS[case]
    own = {name: changes[name] for name in ("settings", "input_dtype") if name in changes}
    run = replace(of(model, tmp_path / "work"), **{name: changes[name] for name in changes.keys() - own.keys()})
    recorded = Recorded()
    with pytest.raises(UserError) as caught:
        train_widths(run, **{"settings": PruneSettings(), **own}, progress=recorded)
    assert message in str(caught.value)
    assert recorded.titles == []
    assert not (tmp_path / "work").exists()


def test_rows_without_labels_are_refused_where_labels_are_needed(model, tmp_path):
    train = examples(model, "train")
    train[4] = replace(train[4], gold=None)
    with pytest.raises(UserError, match="Training row 5 has no label, which the option 'importance' labels needs"):
        train_widths(replace(of(model, tmp_path / "work"), train=train), PruneSettings())


def test_a_family_without_description_is_refused(model, tmp_path):
    unknown = replace(model, config={**model.config, "model_type": "gpt2"})
    with pytest.raises(UserError, match="The family 'gpt2' has no description"):
        train_widths(TrainingRun(unknown, [], [], tmp_path / "work", {}), PruneSettings())


def test_a_folder_with_other_files_is_not_taken_for_work(model, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="holds files that no earlier training left there"):
        train_widths(of(model, tmp_path), PruneSettings())
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("fields", "settings", "message"),
    [
        (
            {"hidden": 48},
            {},
            "The teacher has 2 layers of 48, the model 2 of 32: their hidden states cannot be compared",
        ),
        ({"labels": 3}, {}, "The teacher's 'id2label' is not the model's"),
        ({"head": "TokenClassification"}, {"distill_hidden": 0}, "their tasks differ"),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(model, tmp_path, fields, settings, message):
    names = {"id2label": model.config["id2label"], "label2id": model.config["label2id"]}
    named = {} if "labels" in fields else names
    built = {"labels": 2, "layers": 2, "vocab": 400, **named, **fields}
    teacher = build(tmp_path / "teacher", **built)
    with pytest.raises(UserError) as caught:
        train_widths(of(model, tmp_path / "work"), PruneSettings(teacher=teacher, **settings))
    assert message in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("student", "teacher"), [("bert", "distilbert"), ("distilbert", "bert")])
def test_a_teacher_of_another_family_is_given_its_own_inputs(model, tmp_path, student, teacher):
    names = {"id2label": model.config["id2label"], "label2id": model.config["label2id"]}
    own, other = (build(tmp_path / kind, kind, labels=2, vocab=400, **names) for kind in (student, teacher))
    seen: list[set[str]] = []

    def look(batch: Any) -> Any:
        seen.append(set(batch))
        return batch

    settings = PruneSettings("1/2", importance="teacher", distill_hidden=0, teacher=other, augment=look)
    rows = examples(model, "train")
    run = TrainingRun(open_folder(own), rows, rows[:8], tmp_path / "work", {"max_steps": 1})
    (only,) = train_widths(run, settings)
    assert only.step == 1  # it is not repaired to be like the full model
    assert seen == [{"input_ids", "attention_mask", "token_type_ids"}]
