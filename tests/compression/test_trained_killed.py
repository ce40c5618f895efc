"""Runs that train for INT8, from the command line and from a script, killed: they go on to the same result."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_compress_killed import logits
from test_pruned_killed import wait_for

from children import COMPRESS_ONCE as SCRIPT
from children import TERSELY_QUICKLY as TERSELY
from children import environment
from live import folder
from tersely.compression.output import WORK
from widths import learnt

pytestmark = pytest.mark.slow


def command(place: Path, output: Path) -> list[Any]:
    files: list[Any] = ["--train_file", place / "train.jsonl", "--eval_file", place / "dev.jsonl"]
    fixed = ["--strategy", "qat", "--algo_list", "min_max", "--engines", "onnxruntime", "--learning_rate", "1e-3"]
    more = [*files, *fixed, "--save_steps", "2", "--max_steps", "8", "--output_dir", output]
    return [TERSELY, "compress", "--model_name_or_path", place / "model", *more]


def start(words: list[Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *map(str, words)], env=environment(), stderr=subprocess.PIPE)


def killed_and_uninterrupted(words: Any, place: Path, checkpoint: str) -> str:
    """Run into `whole`; then into `out`, killed at a checkpoint and started again. Gives what the second one said."""
    uninterrupted = start(words(place / "whole"))
    _, said = uninterrupted.communicate(timeout=300)
    assert uninterrupted.returncode == 0, said.decode()[-3000:]
    child = start(words(place / "out"))
    try:
        wait_for(f"{WORK}/{checkpoint}/trainer_state.json", place / "out", child)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert [path.name for path in (place / "out").iterdir() if not path.name.startswith(".")] == []
    again = start(words(place / "out"))
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said.decode()[-3000:]
    assert logits(place / "whole" / "best") == logits(place / "out" / "best")
    first, second = (json.loads((place / name / "result.json").read_text()) for name in ("whole", "out"))
    assert first["trained"] == second["trained"]
    assert [candidate["score"] for candidate in first["candidates"]] == [
        candidate["score"] for candidate in second["candidates"]
    ]
    assert not (place / "out" / WORK).exists()
    return said.decode()


def test_killed_command_goes_on_to_the_same_integers(tmp_path: Path) -> None:
    learnt(tmp_path, hidden=64)
    said = killed_and_uninterrupted(lambda output: command(tmp_path, output), tmp_path, "qat/checkpoint-4")
    assert "An earlier run was interrupted; going on from checkpoint " in said


@pytest.mark.long  # as from the command line, which `make test` runs
@pytest.mark.parametrize(
    ("strategy", "checkpoint"),
    [("qat", "qat/checkpoint-2"), ("dynabert+ptq", "widths/checkpoint-2")],
)
def test_killed_script_goes_on_to_the_same_result(tmp_path: Path, strategy: str, checkpoint: str) -> None:
    model = folder(tmp_path / "model", layers=1)
    killed_and_uninterrupted(lambda output: [SCRIPT, model, output, strategy], tmp_path, checkpoint)
