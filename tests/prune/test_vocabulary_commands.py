"""What was cut goes through the other commands like any model folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from learnable import single, split, tiny, tsv
from tersely.cli import main
from tersely.data.read import read
from tersely.models.folder import open_folder
from tersely.prune.vocabulary import prune_vocabulary
from tersely.tasks import Columns


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its rows, and the model cut to the training rows."""
    folder = tmp_path_factory.mktemp("place")
    train, _ = split(folder, single, tsv, "tsv")
    opened = open_folder(tiny(folder / "model", hidden=64, id2label={0: "bad", 1: "good"}, std=0.3))
    rows = opened.task.read(read(train), Columns(), labelled=True)
    result = prune_vocabulary(opened, rows, folder / "cut")
    assert result.tokens_after < result.tokens_before
    return folder


def test_evaluate_finds_nothing_changed(place, capsys):
    """The dev rows have no words that the training rows lack."""
    arguments = ["--model_name_or_path", place / "cut", "--against", place / "model", "--eval_file", place / "dev.tsv"]
    assert main(["evaluate", *map(str, arguments), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["same_answer"] == 1.0
    assert said["mean_abs_logit_change"] < 1e-6
    assert said["drop"] == 0.0


@pytest.mark.slow
@pytest.mark.usefixtures("short_timings")
def test_export_and_compress_take_it(place, capsys):
    arguments = ["--model_name_or_path", str(place / "cut"), "--eval_file", str(place / "dev.tsv")]
    assert main(["export", *arguments, "--output_dir", str(place / "artifact")]) == 0
    strategy = ["--strategy", "ptq+embeddings", "--train_file", str(place / "train.tsv")]
    assert main(["compress", *arguments, *strategy, "--output_dir", str(place / "out"), "--algo_list", "mse"]) == 0
    capsys.readouterr()
    compared = ["--model_name_or_path", str(place / "artifact"), "--against", str(place / "model")]
    assert main(["evaluate", *compared, "--eval_file", str(place / "dev.tsv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean_abs_logit_change"] < 1e-4
