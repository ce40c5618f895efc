"""`compress` killed at random moments: what is there afterwards is whole and right, or is not there."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from compressible import write_place
from killing import Killer
from laconic import runtime
from laconic.artifact import read

TEXTS = ["the dark river bank", "a film of quiet grace", "paris"]
PARTS = ["best", "candidates", "report.html", "report.md", "result.json"]


def logits(folder: Path) -> bytes:
    """What an artifact gives, every byte of it checked at load."""
    predictor = runtime.load(folder, engine="onnxruntime", threads=1)
    features = predictor.task.features(predictor.task.examples(TEXTS), predictor.encoder)
    return np.stack(predictor.run(features)).tobytes()


def command(folder: Path, output: Path) -> list[str | Path]:
    place = write_place(folder)
    rows: list[str | Path] = ["--train_file", place.train, "--eval_file", place.dev]
    fixed = ["--strategy", "ptq+embeddings", "--algo_list", "mse", "--engines", "onnxruntime"]
    return ["compress", "--input_infer_model_path", place.graph, *rows, *fixed, "--output_dir", output]


def visible(output: Path) -> list[str]:
    return sorted(path.name for path in output.iterdir() if not path.name.startswith(".")) if output.exists() else []


def timed(killer: Killer, words: list[str | Path], output: Path) -> tuple[bytes, float]:
    """What is right, and how long it takes once everything is imported."""
    assert killer.run(*words)[0] == 0, killer.log.read_text()
    shutil.rmtree(output)
    code, seconds = killer.run(*words)
    assert code == 0, killer.log.read_text()
    return logits(output / "best"), seconds


@pytest.mark.slow
def test_killed_run_leaves_all_or_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = command(tmp_path / "model", output)
    draw = random.Random(0)  # noqa: S311 - nothing secret
    killed = 0
    with Killer(tmp_path) as killer:
        right, seconds = timed(killer, words, output)
        shutil.rmtree(output)
        for _ in range(4):
            code, _ = killer.run(*words, kill_after=draw.uniform(0, 1.05 * seconds))
            killed += code == -9
            assert code in (-9, 0), killer.log.read_text()
            for artifact in output.glob("candidates/*"):
                read(artifact)
            if "result.json" in visible(output):
                assert visible(output) == PARTS
                assert logits(output / "best") == right
                assert killer.run(*words)[0] == 1, "a finished result is not run over"  # --debug: the refusal is raised
                assert sorted(path.name for path in output.iterdir()) == PARTS
                shutil.rmtree(output)
            else:
                assert code == -9
        assert killed >= 1
        code, _ = killer.run(*words)  # over what the last kill left
        assert code == 0, killer.log.read_text()
    assert logits(output / "best") == right
    assert sorted(path.name for path in output.iterdir()) == PARTS


@pytest.mark.slow
def test_killed_overwrite_keeps_the_old_run_until_the_new_one_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = command(tmp_path / "model", output)
    draw = random.Random(1)  # noqa: S311 - nothing secret
    with Killer(tmp_path) as killer:
        right, seconds = timed(killer, words, output)
        for _ in range(3):
            code, _ = killer.run(*words, "--overwrite_output_dir", kill_after=draw.uniform(0.5, 1.05) * seconds)
            assert code in (-9, 0), killer.log.read_text()
            assert killer.run(*words)[0] == 1  # refuses, and tidies up
            assert sorted(path.name for path in output.iterdir()) == PARTS
            assert logits(output / "best") == right
