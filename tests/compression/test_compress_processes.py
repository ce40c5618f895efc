"""Whole compress runs on two processes: one writes, scores and speaks; both end alike."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from children import COMPRESS_ONCE as SCRIPT
from children import TERSELY_QUICKLY as TERSELY
from children import TORCHRUN, environment
from live import folder
from tersely import runtime
from tersely.cli import main
from widths import learnt, weights_in

pytestmark = pytest.mark.slow
NAME = "width_mult_0.75"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("learnt")
    learnt(place, hidden=64)
    return place


def command(place: Path, output: Path, batch: int, *more: str) -> list[str]:
    files: list[Any] = ["--train_file", place / "train.jsonl", "--eval_file", place / "dev.jsonl"]
    fixed = ["--engines", "onnxruntime", "--learning_rate", "1e-3", "--save_steps", "2"]
    words = [*files, *fixed, "--max_steps", "4", "--per_device_train_batch_size", batch, "--output_dir", output, *more]
    return ["compress", "--model_name_or_path", str(place / "model"), *map(str, words)]


def start(*words: str | Path, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(**more), stdout=pipe, stderr=pipe, text=True)


def heard(child: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process says until it ends; one that hangs is ended, with all that it started."""
    try:
        return child.communicate(timeout=900)
    except subprocess.TimeoutExpired:
        child.terminate()
        raise


def two(*words: str | Path) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each of two processes that no launcher stands over."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = [start(*words, RANK=str(i), LOCAL_RANK=str(i), WORLD_SIZE="2", MASTER_PORT=port) for i in range(2)]
    said = [heard(process) for process in both]
    return [(process.returncode, *texts) for process, texts in zip(both, said, strict=True)]


@pytest.mark.parametrize("strategy", ["dynabert", pytest.param("dynabert+qat", marks=pytest.mark.long)])
def test_command_writes_and_speaks_once_and_gives_what_one_process_gives(
    model: Path, tmp_path: Path, strategy: str
) -> None:
    steps = ("--strategy", strategy, *(("--algo_list", "min_max") if "qat" in strategy else ()))
    child = start(*TORCHRUN, TERSELY, *command(model, tmp_path / "two", 4, *steps))
    out, err = heard(child)
    assert child.returncode == 0, err[-3000:]
    assert out.count("Next: tersely predict") == 1
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [
        "best", "candidates", "report.html", "report.md", "result.json", "torch",
    ]  # fmt: skip
    assert runtime.load(tmp_path / "two" / "best").predict(["the quick grace"])
    assert main(command(model, tmp_path / "one", 8, *steps)) == 0
    ours, theirs = (weights_in(tmp_path / place / "torch" / NAME) for place in ("two", "one"))
    off = np.concatenate([np.abs(ours[key] - theirs[key]).ravel() for key in ours])
    assert np.mean(off) < 1e-5  # Adam turns rounding into steps where a gradient is almost 0


@pytest.mark.parametrize(
    ("strategies", "made"),
    [
        (("qat",), {"qat"}),
        pytest.param(
            ("dynabert+ptq", "dynabert+qat"), {"width_mult_0.5-mse8", "width_mult_0.5-qat"}, marks=pytest.mark.long
        ),
    ],
)
def test_script_with_functions_of_its_own_ends_alike_on_both(
    tmp_path: Path, strategies: tuple[str, ...], made: set[str]
) -> None:
    child = start(*TORCHRUN, SCRIPT, folder(tmp_path / "model", layers=1), tmp_path / "out", *strategies)
    _, err = heard(child)
    assert child.returncode == 0, err[-3000:]
    first, other = (json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in range(2))
    assert first == other
    assert first["untouched"]
    assert first["metric"] == "custom_evaluate"
    assert set(first["scores"]) == made
    there = {path.name for path in (tmp_path / "out").iterdir()}
    assert there - {"torch"} == {"best", "candidates", "report.html", "report.md", "result.json"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out", "told-0.json", "told-1.json"]


def test_a_refusal_is_told_once_and_ends_both(model: Path, tmp_path: Path) -> None:
    first, second = two("-m", "tersely", *command(model, tmp_path / "out", 4, "--strategy", "dynabert+qaat"))
    assert (first[0], second[0]) == (2, 2)
    assert first[2].startswith("tersely: ")
    assert first[2].endswith("Did you mean 'qat'?\n")
    assert (second[1], second[2]) == ("", "")
    assert not (tmp_path / "out").exists()


def test_an_error_inside_a_training_ends_both(model: Path, tmp_path: Path) -> None:
    """Weights that are no numbers after the training: found on every process, reported by one."""
    rate = ("--strategy", "qat", "--learning_rate", "1e30", "--max_grad_norm", "1e30")
    first, second = two(TERSELY, *command(model, tmp_path / "out", 4, *rate))
    assert first[0] == second[0] != 0
    assert first[2].count("tersely: ") == 1, first[2]
    assert second[2].count("tersely: ") == 0
    assert not (tmp_path / "out" / "result.json").exists()
