"""A compress run that trains, killed: what was trained is taken up again, and the end is the same."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_compress_killed import logits

from children import TERSELY_QUICKLY as TERSELY
from children import environment
from tersely.cli import main
from tersely.compression.output import WORK
from widths import learnt, weights_in

NAME = "width_mult_0.75"


def command(folder: Path, output: Path) -> list[str]:
    files: list[Any] = ["--train_file", folder / "train.jsonl", "--eval_file", folder / "dev.jsonl"]
    fixed = ["--algo_list", "mse", "--engines", "onnxruntime", "--learning_rate", "1e-3", "--save_steps", "2"]
    more: list[Any] = [*files, *fixed, "--max_steps", "8", "--output_dir", output]
    return ["compress", "--model_name_or_path", str(folder / "model"), *map(str, more)]


def wait_for(pattern: str, output: Path, child: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 240
    while not list(output.glob(pattern)):
        assert child.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.slow
def test_killed_training_goes_on_to_the_same_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    learnt(tmp_path, hidden=64)
    uninterrupted, output = tmp_path / "whole", tmp_path / "out"
    assert main(command(tmp_path, uninterrupted)) == 0
    words = command(tmp_path, output)
    child = subprocess.Popen([sys.executable, TERSELY, *words], stderr=subprocess.DEVNULL, env=environment())
    try:
        wait_for(f"{WORK}/widths/checkpoint-4/trainer_state.json", output, child)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert [path.name for path in output.iterdir() if not path.name.startswith(".")] == []
    capfd.readouterr()
    assert main(words) == 0
    assert "An earlier run was interrupted; going on from checkpoint " in capfd.readouterr().err
    assert sorted(path.name for path in output.iterdir()) == [
        "best", "candidates", "report.html", "report.md", "result.json", "torch",
    ]  # fmt: skip
    ours, theirs = (weights_in(place / "torch" / NAME) for place in (uninterrupted, output))
    assert all((ours[name] == theirs[name]).all() for name in ours)
    assert logits(uninterrupted / "best") == logits(output / "best")
    first, second = (json.loads((place / "result.json").read_text()) for place in (uninterrupted, output))
    assert first["pruned"] == second["pruned"]
    assert [candidate["score"] for candidate in first["candidates"]] == [
        candidate["score"] for candidate in second["candidates"]
    ]
