"""`finetune` and `export` killed at random moments: what is there afterwards is whole and right, or is not there."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from killing import Killer
from learnable import LENGTH, single, split, tiny, tsv

TEXTS = ["the dark river bank", "a film of quiet grace", "paris"]


def of_model(folder: Path) -> bytes:
    """What a model folder gives, through transformers alone."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        rows = [model(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in TEXTS]
    return np.stack(rows).tobytes()


def of_artifact(folder: Path) -> bytes:
    """What an artifact gives, every byte of it checked at load."""
    from tersely import runtime

    predictor = runtime.load(folder, engine="onnxruntime", threads=1)
    features = predictor.task.features(predictor.task.examples(TEXTS), predictor.encoder)
    return np.stack(predictor.run(features)).tobytes()


def kill_again_and_again(
    killer: Killer, command: list[str | Path], output: Path, logits: Callable[[Path], bytes], kills: int
) -> None:
    """Kill at moments drawn over the time that the command takes; every later start runs on what the kill left."""
    assert killer.run(*command)[0] == 0, killer.log.read_text()  # imports what it needs
    shutil.rmtree(output)
    code, seconds = killer.run(*command)
    assert code == 0, killer.log.read_text()
    right = logits(output)
    shutil.rmtree(output)
    draw = random.Random(0)  # noqa: S311 - nothing secret
    killed = 0
    for _ in range(kills):
        code, _ = killer.run(*command, kill_after=draw.uniform(0, 1.1 * seconds))
        killed += code == -9
        assert code in (-9, 0), killer.log.read_text()
        if output.exists():
            assert logits(output) == right
            code, _ = killer.run(*command)
            assert code == 1, "a finished result is not run over"  # --debug: the refusal is raised
            assert hidden(output) == []
            shutil.rmtree(output)
        else:
            assert code == -9
    # Fewer than drawn where the machine has become faster since the time was taken; none would test nothing.
    assert killed >= kills // 4
    code, _ = killer.run(*command)
    assert code == 0, killer.log.read_text()
    assert logits(output) == right
    assert hidden(output) == []


def hidden(output: Path) -> list[str]:
    """Work folders beside the output."""
    return sorted(path.name for path in output.parent.iterdir() if path.name.startswith("."))


@pytest.fixture
def finetune_command(tmp_path: Path) -> list[str | Path]:
    train, dev = split(tmp_path, single, tsv, "tsv")
    model = tiny(tmp_path / "encoder")
    words = ["finetune", "--task", "sequence_classification", "--max_steps", "24", "--save_steps", "3"]
    files: list[str | Path] = ["--model_name_or_path", model, "--train_file", train, "--eval_file", dev]
    settings = ["--learning_rate", "3e-3", "--max_seq_length", str(LENGTH)]
    return [*words, *files, *settings, "--output_dir", tmp_path / "out"]


@pytest.fixture
def export_command(tmp_path: Path) -> list[str | Path]:
    model = tiny(tmp_path / "encoder")
    return ["export", "--model_name_or_path", model, "--output_dir", tmp_path / "out"]


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    with Killer(tmp_path_factory.mktemp("killer")) as running:
        yield running


@pytest.mark.parametrize("kills", [pytest.param(5, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.long)])
def test_killed_finetune_leaves_all_or_nothing(
    kills: int, killer: Killer, finetune_command: list[str | Path], tmp_path: Path
) -> None:
    kill_again_and_again(killer, finetune_command, tmp_path / "out", of_model, kills)


@pytest.mark.parametrize("kills", [pytest.param(4, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.long)])
def test_killed_export_leaves_all_or_nothing(
    kills: int, killer: Killer, export_command: list[str | Path], tmp_path: Path
) -> None:
    kill_again_and_again(killer, export_command, tmp_path / "out", of_artifact, kills)
