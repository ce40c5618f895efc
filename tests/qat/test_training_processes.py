"""Training for INT8 that is killed, and that runs on two processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from children import TORCHRUN, environment
from children import TRAIN_INT8_ONCE as SCRIPT
from train_int8_once import write_graph
from widths import learnt, weights_in


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    place = learnt(tmp_path_factory.mktemp("learnt"), hidden=64).path.parent
    write_graph(place)
    return place


def start(*words: str | Path, batch: int = 8) -> subprocess.Popen[bytes]:
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(command, env=environment(BATCH=str(batch)), stderr=subprocess.PIPE)


def finish(child: subprocess.Popen[bytes]) -> None:
    _, said = child.communicate()
    assert child.returncode == 0, said.decode()[-3000:]


def made(work: Path, rank: int = 0) -> dict[str, Any]:
    return json.loads((work.parent / f"made-{rank}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def undisturbed(parent, tmp_path_factory):
    work = tmp_path_factory.mktemp("whole") / "work"
    finish(start(SCRIPT, parent, work))
    return work


@pytest.mark.slow
@pytest.mark.long  # as from the command line, which `make test` runs
def test_killed_training_goes_on_to_the_same_integers(parent, undisturbed, tmp_path):
    work = tmp_path / "work"
    for file in ("start.npz", "checkpoint-6/trainer_state.json"):
        child = start(SCRIPT, parent, work)
        while not (work / file).exists() and child.poll() is None:
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert not (tmp_path / "made-0.json").exists()
    finish(start(SCRIPT, parent, work))
    assert made(work) == made(undisturbed)
    ours, theirs = (weights_in(place / made(place)["folder"]) for place in (work, undisturbed))
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert sorted(path.name for path in work.iterdir()) == sorted(path.name for path in undisturbed.iterdir())


@pytest.mark.slow
def test_two_processes_give_what_one_gives_with_twice_the_batch(parent, undisturbed, tmp_path):
    work = tmp_path / "work"
    finish(start(*TORCHRUN, SCRIPT, parent, work, batch=4))
    assert made(work, 0) == made(work, 1)
    assert made(work)["ranges"].keys() == made(undisturbed)["ranges"].keys() != set()
    for name, (low, high) in made(undisturbed)["ranges"].items():
        assert made(work)["ranges"][name] == pytest.approx([low, high], rel=0.02), name
    if made(work)["step"] == made(undisturbed)["step"]:
        ours, theirs = (weights_in(place / made(place)["folder"]) for place in (work, undisturbed))
        off = np.concatenate([np.abs(ours[key] - theirs[key]).ravel() for key in ours])
        assert np.mean(off) < 1e-4  # single codes flip, and Adam turns that into steps where a gradient is almost 0
