"""`compress` killed at random moments: what is there afterwards is complete and right, or is not there."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from compressible import write_place
from killing import Killer
from tersely import runtime
from tersely.artifact import read

TEXTS = ["the dark river bank", "a film of quiet grace", "paris"]
PARTS = ["best", "candidates", "report.html", "report.md", "result.json"]


def logits(folder: Path) -> bytes:
    """What an artifact gives, every byte of it checked at load."""
    predictor = runtime.load(folder, engine="onnxruntime", threads=1)
    features = predictor.task.features(predictor.task.examples(TEXTS), predictor.encoder)
    return np.stack(predictor.run(features)).tobytes()


class Command(NamedTuple):
    """A run of compress by a process that can be killed, what it gives, and how long it takes, everything imported."""

    killer: Killer
    words: list[str | Path]
    right: bytes
    seconds: float

    def run(self, output: Path, *more: str, kill_after: float | None = None) -> int:
        """The exit code, -9 if it was killed."""
        return self.killer.run(*self.words, "--output_dir", output, *more, kill_after=kill_after)[0]

    def succeed(self, output: Path) -> None:
        assert self.run(output) == 0, self.killer.log.read_text()


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    folder = tmp_path_factory.mktemp("killed")
    place = write_place(folder / "model")
    rows: list[str | Path] = ["--train_file", place.train, "--eval_file", place.dev]
    fixed = ["--strategy", "ptq+embeddings", "--algo_list", "mse", "--engines", "onnxruntime"]
    words = ["compress", "--input_infer_model_path", place.graph, *rows, *fixed]
    with Killer(folder) as killer:
        Command(killer, words, b"", 0.0).succeed(folder / "imports")
        code, seconds = killer.run(*words, "--output_dir", folder / "timed")
        assert code == 0, killer.log.read_text()
        yield Command(killer, words, logits(folder / "timed" / "best"), seconds)


def visible(output: Path) -> list[str]:
    return sorted(path.name for path in output.iterdir() if not path.name.startswith(".")) if output.exists() else []


@pytest.mark.slow
def test_killed_run_leaves_all_or_nothing(command: Command, tmp_path: Path) -> None:
    output = tmp_path / "out"
    draw = random.Random(0)  # noqa: S311 - nothing secret
    killed = 0
    for _ in range(4):
        code = command.run(output, kill_after=draw.uniform(0, 1.05 * command.seconds))
        killed += code == -9
        assert code in (-9, 0), command.killer.log.read_text()
        for artifact in output.glob("candidates/*"):
            read(artifact)
        if "result.json" in visible(output):
            assert visible(output) == PARTS
            assert logits(output / "best") == command.right
            assert command.run(output) == 1, "a finished result is not run over"  # --debug: the refusal is raised
            assert sorted(path.name for path in output.iterdir()) == PARTS
            shutil.rmtree(output)
        else:
            assert code == -9
    assert killed >= 1
    command.succeed(output)  # over what the last kill left
    assert logits(output / "best") == command.right
    assert sorted(path.name for path in output.iterdir()) == PARTS


@pytest.mark.slow
def test_killed_overwrite_keeps_the_old_run_until_the_new_one_is_whole(command: Command, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command.succeed(output)
    draw = random.Random(1)  # noqa: S311 - nothing secret
    for _ in range(3):
        when = draw.uniform(0.5, 1.05) * command.seconds
        code = command.run(output, "--overwrite_output_dir", kill_after=when)
        assert code in (-9, 0), command.killer.log.read_text()
        assert command.run(output) == 1  # refuses, and tidies up
        assert sorted(path.name for path in output.iterdir()) == PARTS
        assert logits(output / "best") == command.right
