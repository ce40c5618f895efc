from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from commands import Tersely
from learnable import finetunable


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finetunable(tmp_path_factory.mktemp("finetune"))


def words_for(place: Path, output: Path) -> list[Any]:
    return [
        "finetune", "--model_name_or_path", place / "encoder", "--task", "sequence_classification",
        "--train_file", place / "train.tsv", "--eval_file", place / "dev.tsv", "--output_dir", output,
        "--max_seq_length", "24", "--max_steps", "2",
    ]  # fmt: skip


def test_one_object_or_three_lines_come_out(tersely: Tersely, place: Path, tmp_path: Path) -> None:
    shown = tersely(*words_for(place, tmp_path / "a"), "--json")
    assert shown.code == 0, shown.err
    assert {name: shown.json[name] for name in ("output_dir", "task", "steps", "metric", "rows")} == {
        "output_dir": str(tmp_path / "a"),
        "task": "sequence_classification",
        "steps": 2,
        "metric": "accuracy",
        "rows": 60,
    }
    plain = tersely(*words_for(place, tmp_path / "b"))
    assert plain.code == 0
    assert f"accuracy {100 * shown.json['score']:.2f}" in plain.out
    assert f"Next: tersely export {tmp_path / 'b'}" in plain.out
    others = [line for line in plain.err.splitlines() if not line.startswith("fine-tune: ")]
    assert others == [], "no bar of transformers' own"


def test_options_of_transformers_have_their_effect(
    tersely: Tersely, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = tersely(*words_for(place, tmp_path / "plain"))
    other = tersely(*words_for(place, tmp_path / "other"), "--adam-beta1", "0.5", "--label_smoothing_factor=0.2")
    same = tersely(*words_for(place, tmp_path / "same"), "--optim", "adamw", "--warmup_ratio", "0", "--bf16", "false")
    assert (plain.code, other.code, same.code) == (0, 0, 0), other.err + same.err
    first, second, third = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "other", "same"))
    assert any(not first[name].equal(second[name]) for name in first)
    assert all(first[name].equal(third[name]) for name in first)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "plain", "same"]


def test_some_rows_are_drawn_by_seed(tersely: Tersely, place: Path, tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        shown = tersely(*words_for(place, tmp_path / name), "--max_train_rows", "20", "--seed", seed)
        assert shown.code == 0, shown.err
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--leraning_rate", "1e-3"], "There is no option '--leraning_rate'. Did you mean '--learning_rate'?"),
        (["--label_smoothing_facto=1"], "There is no option '--label_smoothing_facto'."),
        (["--metric_for_best_model", "f1"], "The '--metric_for_best_model' option has no effect here. Use --metric."),
        (["--do_train"], "The '--do_train' option has no effect here."),
        (["--neftune_noise_alpha", "much"], "A training option cannot be taken: "),
        (["stray"], "stray"),
        (["--lr_scheduler_type", "linaer"], "linaer"),
        (["--seed", "many"], "--seed"),
        (["--bf16", "perhaps"], "expected true or false, got 'perhaps'"),
        (["--max_train_rows", "0"], "The '--max_train_rows' option must be at least 1. Got 0."),
        (["--max_seq_length", "5000"], "The '--max_seq_length' option is 5000, but the model has 96 positions."),
        (["--doc_stride", "3"], "The '--doc_stride' option has no effect on sequence_classification."),
        (["--metric", "pearson"], "The metric 'pearson' does not fit"),
        (["--task", "sequence_clasification"], "Did you mean 'sequence_classification'?"),
        (["--data_dir", "x"], "The '--data_dir' option has no effect without --dataset."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_option_that_cannot_be_taken_is_refused(
    more: list[str], said: str, tersely: Tersely, place: Path, tmp_path: Path
) -> None:
    shown = tersely(*words_for(place, tmp_path / "out"), *more)
    assert (shown.code, shown.out) == (2, "")
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("limit", [20_000, 90_000], ids=["weights", "optimizer"])
def test_full_disk_is_said_and_leaves_nothing_that_loads(limit: int, place: Path, tmp_path: Path) -> None:
    """A limit on the size of files makes writes fail as a full disk does."""
    code = (
        "import resource, sys\nfrom tersely.cli import main\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = [str(word) for word in words_for(place, tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Writing failed: " in done.stderr
    assert "a bug" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_notes_hold_no_path(tersely: Tersely, place: Path, tmp_path: Path) -> None:
    tersely(*words_for(place, tmp_path / "out"))
    text = "".join((tmp_path / "out" / name).read_text() for name in ("tersely_task.json", "config.json"))
    assert str(tmp_path) not in text
    assert str(place) not in text
    assert json.loads((tmp_path / "out" / "tersely_task.json").read_text())["score"]["metric"] == "accuracy"
