"""Width pruning that is killed, and that runs on two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from children import TORCHRUN, environment
from children import TRAIN_WIDTHS_ONCE as SCRIPT
from widths import learnt, weights_in

NAMES = ["width_mult_0.5", "width_mult_0.5-depth_mult_0.5"]


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    return learnt(tmp_path_factory.mktemp("learnt")).path.parent


@pytest.fixture(scope="module")
def without_dropout(tmp_path_factory):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return learnt(tmp_path_factory.mktemp("without"), **rates).path.parent


def start(*words: str | Path, batch: int = 8) -> str:
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment(BATCH=str(batch)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def made(work: Path, rank: int = 0) -> list[tuple[str, str, int, float]]:
    return [tuple(line) for line in json.loads((work.parent / f"made-{rank}.json").read_text(encoding="utf-8"))]


def assert_equal_results(left: Path, right: Path) -> None:
    assert made(left) == made(right)
    for _, folder, _, _ in made(left):
        ours, theirs = weights_in(left / folder), weights_in(right / folder)
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
@pytest.mark.long  # as from the command line, which `make test` runs
def test_killed_training_goes_on_to_the_same_weights(parent, tmp_path):
    undisturbed, killed = tmp_path / "a" / "work", tmp_path / "b" / "work"
    for work in (undisturbed, killed):
        work.parent.mkdir()
    start(SCRIPT, parent, undisturbed)
    # A checkpoint that has just begun, and two that are whole: their last file is there.
    files = ("checkpoint-3", "checkpoint-6/trainer_state.json", "checkpoint-9/trainer_state.json")
    runs = [json.loads(line) for line in start(SCRIPT, parent, killed, *files).splitlines()]
    assert [code for code, _ in runs] == [-9, -9, -9, 0]
    assert "checkpoint-9" in runs[2][1]
    assert_equal_results(undisturbed, killed)
    assert sorted(path.name for path in killed.iterdir()) == sorted(path.name for path in undisturbed.iterdir())


@pytest.mark.slow
@pytest.mark.long  # as from the command line, which `make test` runs
def test_two_processes_give_what_one_gives_with_twice_the_batch(without_dropout, tmp_path):
    alone, work = tmp_path / "alone" / "work", tmp_path / "two" / "work"
    for place in (alone, work):
        place.parent.mkdir()
    start(SCRIPT, without_dropout, alone)
    start(*TORCHRUN, SCRIPT, without_dropout, work, batch=4)
    assert made(work, 0) == made(work, 1)
    assert [name for name, *_ in made(work)] == NAMES
    kept = {folder.split("/")[0] for _, folder, _, _ in made(work)}
    assert sorted(path.name for path in work.iterdir()) == sorted({"result.json", "run.txt", *kept})
    for (name, folder, step, _), (_, other, step_alone, _) in zip(made(work), made(alone), strict=True):
        files = [path.name for path in (work / folder).iterdir()]
        assert "model.safetensors" in files, name
        assert not [file for file in files if file.startswith(".")]
        assert step == step_alone
        ours, theirs = weights_in(work / folder), weights_in(alone / other)
        off = np.concatenate([np.abs(ours[key] - theirs[key]).ravel() for key in ours])
        assert np.mean(off) < 1e-5  # Adam turns rounding into steps where a gradient is almost 0
