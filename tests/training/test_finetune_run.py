"""How a run behaves: seeds, the best checkpoint, going on after a kill, and what it leaves alone."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub.utils.tqdm import are_progress_bars_disabled
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from learnable import LENGTH, finetunable, jsonl, several, split, tiny
from tersely.data import read
from tersely.data.rows import Rows
from tersely.engines.cpu import cpu
from tersely.errors import UserError
from tersely.progress import Advance
from tersely.tasks import Columns
from tersely.tasks.options import TaskOptions
from tersely.training.arguments import DECIDED, WITHOUT_EFFECT, checked
from tersely.training.finetune import Finetuned, LabelledRows, find_labels, finetune

OPTIONS = TaskOptions(task="sequence_classification", max_seq_length=LENGTH)
SHORT: dict[str, Any] = {"max_steps": 12, "save_steps": 4, "learning_rate": 3e-3}


class Watching:
    """Notes what is said and shown; stops the run at a step if asked to."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at, self.done, self.total = stop_at, 0, 0
        self.said: list[str] = []
        self.notes: list[str] = []

    @contextmanager
    def track(self, title: str, total: int) -> Iterator[Advance]:
        self.total = total
        yield self._advance

    def _advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        self.notes.append(note)
        if self.stop_at is not None and self.done >= self.stop_at:
            raise KeyboardInterrupt

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finetunable(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Finetuned:
    """A run that nothing disturbed."""
    return run(place, place / "whole")


def run(place: Path, output: Path, progress: Any = None, train: str = "train.tsv", **training: Any) -> Finetuned:
    return finetune(
        place / "encoder",
        LabelledRows(read(place / train), read(place / "dev.tsv")),
        output,
        options=OPTIONS,
        training={**SHORT, **training},
        progress=progress or Watching(),
    )


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_same_seed_gives_the_same_bytes_and_another_seed_others(
    place: Path, undisturbed: Finetuned, tmp_path: Path
) -> None:
    same, other = (run(place, tmp_path / str(seed), seed=seed).folder for seed in (42, 2))
    assert {path.name: path.read_bytes() for path in same.iterdir()} == {
        path.name: path.read_bytes() for path in undisturbed.folder.iterdir()
    }
    assert weights(other) != weights(same)
    assert left_behind(tmp_path) == ["2", "42"]


def test_best_checkpoint_is_kept_not_the_last(place: Path, tmp_path: Path) -> None:
    wild: dict[str, Any] = {"learning_rate": 0.02, "max_steps": 16, "lr_scheduler_type": "constant", "seed": 3}
    watching = Watching()
    best = run(place, tmp_path / "best", watching, **{**wild, "save_steps": 1})
    last = run(place, tmp_path / "last", **{**wild, "save_steps": 16})
    seen = [
        float(note.split("accuracy ")[1].split()[0])
        for note in watching.notes
        if "accuracy" in note and "scoring" not in note
    ]
    assert len(seen) == 15  # each step's score is shown with the next step
    assert 100 * best.score.value == pytest.approx(max(*seen, 100 * last.score.value), abs=0.006)
    assert best.score.value > last.score.value
    assert weights(best.folder) != weights(last.folder)


@pytest.mark.parametrize("stop_at", [3, 6, 11])
def test_interrupted_run_goes_on_to_the_same_bytes(
    stop_at: int, place: Path, undisturbed: Finetuned, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(place, tmp_path / "cut", Watching(stop_at))
    assert left_behind(tmp_path) == [".cut.training"]
    again = Watching()
    done = run(place, tmp_path / "cut", again)
    assert weights(done.folder) == weights(undisturbed.folder)
    assert (done.score.value, done.steps) == (undisturbed.score.value, 12)
    step = 4 * ((stop_at - 1) // 4)
    assert again.said == ([f"An earlier run was interrupted; going on from checkpoint {step}."] if step else [])
    assert (again.done, again.total) == (12, 12)
    assert left_behind(tmp_path) == ["cut"]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["data", "seed", "config"])
def test_checkpoints_of_another_input_are_not_taken_up(change: str, place: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(place, tmp_path / "out", Watching(6))
    here = Path(shutil.copytree(place, tmp_path / "place"))
    more: dict[str, Any] = {}
    if change == "data":
        lines = (here / "train.tsv").read_text().splitlines()
        (here / "train.tsv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    elif change == "seed":
        more["seed"] = 7
    else:
        config = json.loads((here / "encoder" / "config.json").read_text())
        (here / "encoder" / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.3}))
    again = Watching()
    done = run(here, tmp_path / "out", again, **more)
    assert again.said == []
    assert weights(done.folder) == weights(run(here, tmp_path / "fresh", **more).folder)


def test_checkpoint_cut_off_in_the_middle_is_passed_over(place: Path, undisturbed: Finetuned, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(place, tmp_path / "cut", Watching(10))
    (tmp_path / ".cut.training" / "checkpoint-8" / "trainer_state.json").write_text('{"global_step": 8, "ep')
    again = Watching()
    done = run(place, tmp_path / "cut", again)
    assert "going on from checkpoint 8" not in " ".join(again.said)
    assert weights(done.folder) == weights(undisturbed.folder)


def test_checkpoints_left_by_a_finished_run_are_removed_and_those_of_another_kept(place: Path, tmp_path: Path) -> None:
    done = run(place, tmp_path / "out", max_steps=1)
    mark = json.loads((done.folder / "tersely_task.json").read_text())["run"]
    work = tmp_path / ".out.training"
    for content, stays in (("of another run", True), (mark, False)):
        work.mkdir()
        (work / "run.txt").write_text(content)
        with pytest.raises(UserError, match="exists and is not empty"):
            run(place, tmp_path / "out", max_steps=1)
        assert work.exists() == stays
        shutil.rmtree(work, ignore_errors=True)


def test_nothing_global_changes(place: Path, tmp_path: Path) -> None:
    transformers_logging.set_verbosity_info()
    torch.set_num_threads(1)
    state = _global_state()
    run(place, tmp_path / "out", max_steps=2, save_steps=1)
    try:
        assert _global_state() == state
    finally:
        transformers_logging.set_verbosity_warning()


def test_nothing_global_changes_when_it_fails(place: Path, tmp_path: Path) -> None:
    state = _global_state()
    with pytest.raises(KeyboardInterrupt):
        run(place, tmp_path / "out", Watching(1))
    assert _global_state() == state


def _global_state() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": [str(part) for part in np.random.get_state()],
        "python": random.getstate(),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "verbosity": transformers_logging.get_verbosity(),
        "bars": (transformers_logging.is_progress_bar_enabled(), are_progress_bars_disabled()),
        "loggers": [logging.getLogger(name).level for name in ("", "accelerate", "transformers", "torch", "tersely")],
        "environment": dict(os.environ),
        "warnings": len(warnings.filters),
        "hooks": (sys.excepthook, sys.stdout, sys.stderr),
    }


@pytest.mark.skipif(cpu().bf16 or torch.cuda.is_available(), reason="this machine has bf16")
def test_bf16_is_refused_by_name_where_the_cpu_has_none(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'bf16' option needs a CPU with bf16"):
        run(place, tmp_path / "out", bf16=True)
    assert left_behind(tmp_path) == []


@pytest.mark.skipif(not cpu().bf16, reason="this machine has no bf16")
def test_bf16_trains_where_the_cpu_has_it(place: Path, tmp_path: Path) -> None:
    done = run(place, tmp_path / "out", bf16=True)
    assert {tensor.dtype for tensor in load_file(done.folder / "model.safetensors").values()} == {torch.float32}


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"per_device_train_batch_size": 0}, "'per_device_train_batch_size' option must be at least 1. Got 0"),
        ({"num_train_epochs": -1.0}, "'num_train_epochs' option must be above 0. Got -1.0"),
        ({"learning_rate": float("nan")}, "'learning_rate' option must be a number"),
        ({"seed": -1}, "'seed' option must not be negative"),
        ({"seed": 2**32}, "'seed' option must be at most"),
        ({"max_steps": 0}, "'max_steps' option must be at least 1"),
        ({"save_steps": 0}, "'save_steps' option must be at least 1"),
        ({"warmup_ratio": 0.1, "warmup_steps": 3}, "'warmup_ratio' option is a share"),
        ({"optim": "adam_x"}, "adam_x"),
        ({"lr_scheduler_type": "linaer"}, "linaer"),
        ({"eval_strategy": "steps"}, "'eval_strategy' option has no effect here"),
        ({"metric_for_best_model": "f1"}, "Use metric"),
        ({"label_names": ["x"]}, "'label_names' option has no effect here"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_training_option_that_cannot_be_taken_is_refused_by_name(
    training: dict[str, Any], said: str, place: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        run(place, tmp_path / "out", **training)
    assert said in str(caught.value)
    assert left_behind(tmp_path) == []


def test_options_refused_are_options_of_transformers() -> None:
    from transformers import TrainingArguments

    assert {*DECIDED, *WITHOUT_EFFECT} <= set(TrainingArguments.__dataclass_fields__)


def test_older_names_are_translated() -> None:
    assert checked({"optim": "adamw", "warmup_ratio": 0.25}) == {"warmup_steps": 0.25}
    assert checked({"warmup_ratio": 0.25, "warmup_steps": 0}) == {"warmup_steps": 0.25}
    assert checked({"warmup_ratio": 0.0, "warmup_steps": 9}) == {"warmup_steps": 9}
    assert checked({"device": "cpu"}) == {"use_cpu": True}
    with pytest.raises(UserError, match="'device' option cannot be 'gqu'"):
        checked({"device": "gqu"})


def test_weights_that_are_not_numbers_are_refused(place: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(place, tmp_path / "place"))
    tensors = load_file(here / "encoder" / "model.safetensors")
    name = next(name for name in tensors if name.endswith("query.weight"))
    tensors[name][0, 0] = float("nan")
    save_file(tensors, here / "encoder" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"query.weight' holds NaN"):
        run(here, tmp_path / "out")
    assert left_behind(tmp_path) == ["place"]


def test_training_that_diverges_is_said_and_leaves_nothing(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="NaN"):
        run(place, tmp_path / "out", learning_rate=1e30, max_grad_norm=0.0)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("damage", ["missing", "shape"])
def test_encoder_whose_weights_do_not_fit_its_config_is_refused(damage: str, place: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(place, tmp_path / "place"))
    tensors = load_file(here / "encoder" / "model.safetensors")
    name = next(name for name in tensors if name.endswith("query.weight"))
    if damage == "missing":
        del tensors[name]
    else:
        tensors[name] = tensors[name][:16].contiguous()
    save_file(tensors, here / "encoder" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lack '.*query.weight'"):
        run(here, tmp_path / "out")


def test_head_of_another_size_is_drawn_anew(place: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(place, tmp_path / "place"))
    tiny(here / "encoder", labels=5)
    assert run(here, tmp_path / "out").task.labels == ("bad", "good")


def test_output_that_exists_is_refused_and_overwrite_replaces_own_files_only(place: Path, tmp_path: Path) -> None:
    output = run(place, tmp_path / "out").folder
    before = weights(output)
    with pytest.raises(UserError, match="exists and is not empty"):
        run(place, output, seed=9)
    assert weights(output) == before
    rows = LabelledRows(read(place / "train.tsv"), read(place / "dev.tsv"))
    again: dict[str, Any] = {"options": OPTIONS, "training": {**SHORT, "seed": 9}, "overwrite": True}
    (output / "mine.txt").write_text("precious")
    with pytest.raises(UserError, match=r"did not write \(mine.txt\)"):
        finetune(place / "encoder", rows, output, **again)
    assert (output / "mine.txt").read_text() == "precious"
    (output / "mine.txt").unlink()
    finetune(place / "encoder", rows, output, **again)
    assert weights(output) != before
    assert left_behind(tmp_path) == ["out"]


def test_written_files_can_be_read_by_others(place: Path, tmp_path: Path) -> None:
    output = run(place, tmp_path / "out", max_steps=1).folder
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in (output, *output.iterdir()))


def test_steps_shown_are_steps_done(place: Path, tmp_path: Path) -> None:
    watching = Watching()
    training = {"max_steps": -1, "num_train_epochs": 0.35, "per_device_train_batch_size": 16, "save_steps": 2}
    done = run(place, tmp_path / "out", watching, gradient_accumulation_steps=2, **training)
    assert watching.done == watching.total == done.steps == 2


def test_labels_file_beside_the_rows_gives_the_order(place: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(place, tmp_path / "place"))
    jsonl(here / "labels.json", [{"label": "good"}, {"label": "fair"}, {"label": "bad"}])
    done = run(here, tmp_path / "out", max_steps=1)
    assert done.task.labels == ("good", "fair", "bad")
    config = json.loads((done.folder / "config.json").read_text())
    assert config["label2id"] == {"good": 0, "fair": 1, "bad": 2}


def labelled(*labels: Any) -> Rows:
    return Rows.collect("rows.jsonl", [(i, {"text": "dark", "label": label}) for i, label in enumerate(labels, 1)])


def test_one_label_only_is_refused() -> None:
    with pytest.raises(UserError, match=r"rows.jsonl: All rows have the same label, 'a'"):
        find_labels(labelled("a", "a"), Columns(), "sequence_classification", "single_label_classification")


def test_list_of_labels_for_a_single_label_says_which_task_to_take() -> None:
    with pytest.raises(UserError, match=r"rows.jsonl:2: .* task multi_label_classification"):
        find_labels(labelled("a", ["a", "b"]), Columns(), "sequence_classification", "single_label_classification")


def test_blanks_around_a_label_are_no_part_of_it(place: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(place, tmp_path / "place"))
    text = (here / "train.tsv").read_text().replace("\tgood\n", "\tgood \n", 3)
    (here / "train.tsv").write_text(text)
    assert run(here, tmp_path / "out", max_steps=1).task.labels == ("bad", "good")


def test_row_without_a_label_is_named() -> None:
    with pytest.raises(UserError, match=r"rows.jsonl:2: The row has no label"):
        find_labels(labelled("a", None), Columns(), "sequence_classification", "single_label_classification")


def test_missing_label_column_says_which_columns_exist() -> None:
    rows = Rows.collect("rows.jsonl", [(1, {"text": "dark", "mark": "a"})])
    with pytest.raises(UserError, match=r"no label column. Columns here: text, mark. Name it with label_column"):
        find_labels(rows, Columns(), "sequence_classification", "single_label_classification")


def test_multi_label_rows_may_be_texts_with_commas(tmp_path: Path) -> None:
    files = split(tmp_path, several, jsonl, "jsonl")
    rows = read(files[0])
    joined = rows.map(lambda row: {**row, "labels": ", ".join(row["labels"])}, rows.columns)
    found = find_labels(joined, Columns(), "sequence_classification", "multi_label_classification")
    assert found == ("animal", "place", "time")


def test_task_of_a_fine_tuned_model_is_kept_when_none_is_named(place: Path, tmp_path: Path) -> None:
    first = run(place, tmp_path / "first", max_steps=1)
    second = finetune(
        first.folder,
        LabelledRows(read(place / "train.tsv"), read(place / "dev.tsv")),
        tmp_path / "second",
        options=TaskOptions(),
        training={"max_steps": 1},
    )
    assert second.task == first.task
