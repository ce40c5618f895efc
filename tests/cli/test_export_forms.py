"""`tersely export --openvino` and `--triton`: of model folders and artifacts, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
import torch
from transformers import AutoModelForSequenceClassification

import tiny_artifacts
from blocked import BLOCKED
from commands import Tersely

Folder = Callable[..., Path]
RUN = "from tersely.cli import main\nsys.exit(main(sys.argv[1:]))"


@pytest.mark.slow
def test_model_folder_becomes_openvinos_own_form_scored_there(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    words: list[Any] = ["export", "--model_name_or_path", model_folder(), "--output_dir", tmp_path / "ir"]
    done = tersely(*words, "--openvino", "--eval_file", files["text"], "--input_dtype", "int32", "--json")
    assert done.code == 0, done.err
    shown = done.json
    assert (shown["graph"], shown["score"]["engine"]) == ("openvino_model.xml", "openvino")
    evaluated = tersely("evaluate", "--model_name_or_path", model_folder(), "--eval_file", files["text"], "--json").json
    assert (shown["score"]["value"], shown["score"]["rows"]) == (evaluated["score"], evaluated["rows"])
    ids = np.random.default_rng(0).integers(5, 100, (3, 9)).astype(np.int32)
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    compiled = openvino.Core().compile_model(
        tmp_path / "ir" / "openvino_model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    model = AutoModelForSequenceClassification.from_pretrained(model_folder())
    with torch.no_grad():
        expected = model(**{name: torch.tensor(array) for name, array in feed.items()}).logits.numpy()
    assert np.abs(compiled(feed)["logits"] - expected).max() < 1e-4
    assert [path.name for path in tmp_path.iterdir()] == ["ir"]


@pytest.mark.parametrize("form", ["--openvino", "--triton"])
def test_artifact_takes_another_form_without_torch(form: str, tmp_path: Path) -> None:
    folder = tiny_artifacts.make_int8(tmp_path / "sent")
    code = BLOCKED + RUN
    words = ["export", "--model_name_or_path", str(folder), "--output_dir", str(tmp_path / "out"), form]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    graph = {"--openvino": "openvino_model.xml", "--triton": "sent/1/model.onnx"}[form]
    assert (tmp_path / "out" / graph).is_file()
    following = {"--openvino": "tersely predict", "--triton": "tritonserver --model-repository"}[form]
    assert done.stdout.splitlines()[-1] == f"Next: {following} {tmp_path / 'out'}"


REFUSED = {
    "an artifact and no form": ([], "This is an artifact already. Other forms: --openvino, --triton."),
    "both forms": (["--openvino", "--triton"], "not allowed with argument"),
    "a type of inputs": (
        ["--openvino", "--input_dtype", "int32"],
        "The '--input_dtype' option has no effect without a model folder. Leave it out.",
    ),
    "another length": (["--triton", "--max_seq_length", "16"], "The '--max_seq_length' option has no effect without"),
    "a name that Triton does not take": (["--triton", "a/b"], "A model in Triton cannot be called 'a/b'"),
    "rows that are not there": (["--openvino", "--eval_file", "none.tsv"], "none.tsv: There is no such file."),
    "a full output folder": (["--openvino", "--output_dir", "FULL"], "exists and is not empty"),
    "no model": (["--openvino", "--model_name_or_path", "none"], "none: There is no such model folder."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(case: str, tersely: Tersely, tmp_path: Path) -> None:
    folder = tiny_artifacts.make(tmp_path / "artifact")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    before = set(tmp_path.rglob("*"))
    words, said = REFUSED[case]
    flags = [str(tmp_path / "full") if word == "FULL" else word for word in words]
    done = tersely("export", "--model_name_or_path", folder, "--output_dir", tmp_path / "out", *flags)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before


def test_missing_openvino_is_named_with_what_to_type(tmp_path: Path) -> None:
    folder = tiny_artifacts.make(tmp_path / "artifact")
    code = (
        BLOCKED.replace("'torch'", "'torch', 'openvino'") + "from tersely.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    words = ["export", "--model_name_or_path", str(folder), "--output_dir", str(tmp_path / "out"), "--openvino"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert 'pip install "openvino>=' in done.stderr
    assert not (tmp_path / "out").exists()
