from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from commands import Tersely
from tersely.data import read

Folder = Callable[..., Path]


@pytest.fixture(scope="module")
def reference(model_folder: Folder, files: dict[str, Path]) -> dict[str, float]:
    """What transformers and scikit-learn find."""
    folder = model_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    rows = read(files["text"]).records
    with torch.no_grad():
        found = [int(model(**tokenizer(row["text"], return_tensors="pt")).logits.argmax()) for row in rows]
    names = [model.config.id2label[i] for i in found]
    golds = [row["label"] for row in rows]
    return {
        "accuracy": float(accuracy_score(golds, names)),
        "macro_f1": float(f1_score(golds, names, average="macro", labels=["bad", "fair", "good"], zero_division=0)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "torch", "onnxruntime", "openvino"])
def test_model_folder_scores_the_same_on_every_engine(
    engine: str, tersely: Tersely, model_folder: Folder, files: dict[str, Path], reference: dict[str, float]
) -> None:
    shown = tersely(
        "evaluate", "--model_name_or_path", model_folder(), "--eval_file", files["text"], "--engine", engine, "--json"
    )
    assert shown.code == 0
    result = shown.json
    assert result["score"] == pytest.approx(reference["accuracy"], abs=1e-12)
    assert result["engine"] == ("torch" if engine == "auto" else engine)
    assert result["interval"][0] <= result["score"] <= result["interval"][1]
    assert {"model", "metric", "metrics", "rows", "cpu", "seconds", "threads"} <= set(result)
    if engine in ("onnxruntime", "openvino"):
        assert shown.err.startswith(f"{model_folder()} is a model folder: exporting it to ONNX first.\n")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "onnxruntime", "openvino"])
def test_artifact_scores_the_same_and_agrees_with_the_model(
    engine: str,
    tersely: Tersely,
    model_folder: Folder,
    artifact_folder: Folder,
    files: dict[str, Path],
    reference: dict[str, float],
) -> None:
    words: list[Any] = ["evaluate", "--model_name_or_path", artifact_folder(), "--eval_file", files["text"]]
    shown = tersely(*words, "--engine", engine, "--against", model_folder(), "--json").json
    assert shown["score"] == pytest.approx(reference["accuracy"], abs=1e-12)
    assert (shown["drop"], shown["same_answer"]) == (0.0, 1.0)
    assert shown["mean_abs_logit_change"] < 1e-4
    low, high = shown["drop_interval"]
    assert low <= 0 <= high
    plain = tersely(*words, "--engine", engine, "--against", model_folder())
    assert plain.code == 0
    assert "drop 0.00 points" in plain.out
    assert "same answer 100.00 %" in plain.out


def test_other_metric_becomes_the_score(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], reference: dict[str, float]
) -> None:
    words: list[Any] = ["evaluate", "--model_name_or_path", model_folder(), "--eval_file", files["text"]]
    shown = tersely(*words, "--metric", "macro_f1", "--json").json
    assert (shown["metric"], shown["score"]) == ("macro_f1", pytest.approx(reference["macro_f1"], abs=1e-12))
    wrong = tersely(*words, "--metric", "acuracy")
    assert wrong.code == 2
    assert "Did you mean 'accuracy'?" in wrong.err


def test_table_shows_points(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], reference: dict[str, float]
) -> None:
    shown = tersely("evaluate", "--model_name_or_path", model_folder(), "--eval_file", files["text"])
    assert shown.code == 0
    words = [line.split() for line in shown.out.splitlines()]
    assert ["accuracy", f"{100 * reference['accuracy']:.2f}"] in [line[:2] for line in words]
    assert "30 rows" in shown.out


@pytest.mark.parametrize(("head", "kind"), [("TokenClassification", "words"), ("QuestionAnswering", "question")])
def test_other_tasks_are_read_from_the_model(
    head: str, kind: str, tersely: Tersely, model_folder: Folder, files: dict[str, Path]
) -> None:
    shown = tersely("evaluate", "--model_name_or_path", model_folder(head), "--eval_file", files[kind], "--json")
    assert shown.code == 0, shown.err
    assert shown.json["metric"] == "f1"
    assert 0 <= shown.json["score"] <= 1


def test_data_set_is_found_by_name(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reviews").mkdir()
    shutil.copy(files["text"], tmp_path / "reviews" / "dev.tsv")
    words: list[Any] = ["evaluate", "--model_name_or_path", model_folder(), "--dataset", "reviews", "--json"]
    assert tersely(*words, "--data_dir", tmp_path).json["rows"] == 30
    monkeypatch.setenv("TERSELY_DATA", str(tmp_path))
    assert tersely(*words).json["rows"] == 30


def test_models_that_mean_different_things_are_not_compared(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    other = Path(shutil.copytree(model_folder(), tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    names = ("good", "fair", "bad")
    config |= {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    (other / "config.json").write_text(json.dumps(config))
    shown = tersely(
        "evaluate", "--model_name_or_path", model_folder(), "--eval_file", files["text"], "--against", other
    )
    assert shown.code == 2
    assert "cannot be compared" in shown.err


def test_comparing_two_models_gives_the_drop(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    other = Path(shutil.copytree(model_folder(), tmp_path / "other"))
    tensors = load_file(other / "model.safetensors")
    tensors["classifier.weight"] = -tensors["classifier.weight"]
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    words: list[Any] = ["evaluate", "--eval_file", files["text"], "--json", "--model_name_or_path"]
    first, second = (tersely(*words, folder).json["score"] for folder in (model_folder(), other))
    both = tersely(*words, other, "--against", model_folder()).json
    assert both["drop"] == pytest.approx(first - second, abs=1e-12)
    assert both["same_answer"] < 1
    assert both["mean_abs_logit_change"] > 0.01
    assert np.isfinite(both["drop_interval"]).all()
