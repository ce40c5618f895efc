"""The page on other tools: its lines are run as they stand, and their answers are Tersely's."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tersely
import tiny_artifacts
from compressible import write_place
from tersely import runtime
from tersely.cli import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/how_to/use_elsewhere.md").read_text(encoding="utf-8")
JS = ROOT / "tests/support/transformers_js.mjs"
LABELS = ("bad", "fair", "good")
TEXTS: list[Any] = ["A quiet, moving film.", ("Is it good?", "It is dull and long.")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the page names: an FP32 artifact and an INT8 one, in the folder that commands run in."""
    for name, make in (("artifact", tiny_artifacts.make), ("smaller/best", tiny_artifacts.make_int8)):
        folder = make(tmp_path / name)
        config = {"model_type": "bert", "pad_token_id": 0, "id2label": dict(enumerate(LABELS))}
        (folder / "config.json").write_text(json.dumps(config))
        tiny_artifacts.reseal(folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plain_onnxruntime_in_ten_lines_gives_the_runtimes_answers(folders: Path) -> None:
    (code, _) = blocks("python")
    lines = [line for line in code.splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(lines) <= 10
    assert "tersely" not in code
    named = 'InferenceSession("artifact/onnx/model.onnx")  # INT8: smaller/best/onnx/model_quantized.onnx'
    assert named in code
    for folder, graph in (("artifact", "model.onnx"), ("smaller/best", "model_quantized.onnx")):
        namespace: dict[str, Any] = {}
        exec(code.replace("artifact/onnx/model.onnx", f"{folder}/onnx/{graph}"), namespace)  # noqa: S102
        predictor = runtime.load(folder, "onnxruntime", 1)
        assert namespace["labels"] == [answer.label for answer in predictor.predict(TEXTS)]
        features = predictor.task.features(predictor.task.examples(TEXTS), predictor.encoder)
        apart = np.abs(namespace["logits"] - np.stack(predictor.run(features))).max()
        assert apart < (1e-5 if folder == "artifact" else 0.1)  # INT8: another graph, which rounds elsewhere


def test_plain_openvino_gives_the_artifacts_logits(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, code = blocks("python")
    (command,) = [block for block in blocks("bash") if "--openvino" in block]
    assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    namespace: dict[str, Any] = {}
    exec(plain, namespace)  # noqa: S102
    exec(code, namespace)  # noqa: S102
    predictor = runtime.load("openvino-model", "openvino", 1)
    features = predictor.task.features(predictor.task.examples(TEXTS), predictor.encoder)
    assert np.abs(namespace["logits"] - np.stack(predictor.run(features))).max() < 1e-5


def test_triton_command_writes_the_repository_that_it_names(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [block for block in blocks("bash") if "--triton" in block]
    export, serve = code.splitlines()
    assert main(shlex.split(export)[1:]) == 0, capsys.readouterr().err
    assert serve in capsys.readouterr().out
    named = re.findall(r"`(models/reviews/[^`]+)`", PAGE)
    assert named
    for name in named:
        assert Path(name).is_file(), name
    assert main(["check", "models/reviews"]) == 0


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which transformers.js is installed."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed")
    folder = tmp_path_factory.mktemp("javascript")
    (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "@huggingface/transformers"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    shutil.copyfile(JS, folder / JS.name)
    return folder


@pytest.fixture(scope="module")
def artifacts(
    artifact_folder: Callable[..., Path], short_timings: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """By head an FP32 artifact of a BERT and an INT8 one, of the graph writers' own, of a smaller model."""
    place = tmp_path_factory.mktemp("artifacts")
    for head in ("SequenceClassification", "TokenClassification", "QuestionAnswering"):
        shutil.copytree(artifact_folder(head), place / f"{head}-fp32")
        made = write_place(place / f"{head}-model", head)
        done = tersely.compress(
            made.folder, input_infer_model_path=made.graph, eval_file=made.dev, train_file=made.train,
            output_dir=place / f"{head}-run", strategy="ptq+embeddings", algo_list="mse", calibration_rows=16,
            engines=["onnxruntime"],
        )  # fmt: skip
        shutil.copytree(done.path, place / f"{head}-int8")
    return place


TEXT, PAIR = "The old river bank near Paris.", ("A film of quiet grace.", "The shares rose on Friday.")
INPUTS = {
    "text-classification": ("SequenceClassification", [TEXT]),
    "pair": ("SequenceClassification", list(PAIR)),
    "token-classification": ("TokenClassification", [TEXT]),
    "question-answering": ("QuestionAnswering", ["what is the capital", "paris is the capital of france"]),
}
DTYPES = {"fp32": "fp32", "int8": "q8"}


@pytest.mark.long
def test_transformers_js_gives_the_runtimes_answers(javascript: Path, artifacts: Path, tmp_path: Path) -> None:
    requests = [
        {"task": task, "model": f"{head}-{precision}", "dtype": dtype, "inputs": inputs}
        for task, (head, inputs) in INPUTS.items()
        for precision, dtype in DTYPES.items()
    ]
    (tmp_path / "asked.json").write_text(json.dumps({"folder": f"{artifacts}{os.sep}", "asked": requests}))
    done = run_node(javascript, JS.name, tmp_path / "asked.json")
    for request, said in zip(requests, json.loads(done.splitlines()[-1]), strict=True):
        folder = artifacts / str(request["model"])
        # The runtime has a graph of its own, which rounds elsewhere.
        close = 1e-4 if request["dtype"] == "fp32" else 0.02
        COMPARE[str(request["task"])](runtime.load(folder, "onnxruntime", 1), said, close)


def same_classes(predictor: runtime.Predictor, said: Any, close: float) -> None:
    (answer,) = predictor.predict(TEXT)
    assert said[0]["label"] == answer.label
    assert {label["label"]: label["score"] for label in said} == pytest.approx(answer.scores, abs=close)


def same_pair(predictor: runtime.Predictor, said: Any, close: float) -> None:
    (answer,) = predictor.predict(PAIR)
    chances = np.exp(said) / np.exp(said).sum()
    assert dict(zip(answer.scores, chances, strict=True)) == pytest.approx(answer.scores, abs=close)


def same_tags(predictor: runtime.Predictor, said: Any, close: float) -> None:
    """It tags tokens and the runtime tags words: only tokens that begin a word are compared."""
    (answer,) = predictor.predict(TEXT)
    encoding = predictor.encoder.texts([TEXT], None, 64)[0]
    firsts = [place for place, token in enumerate(encoding.tokens) if token[0] != "[" and token[:2] != "##"]
    by_place = {token["index"]: token for token in said}
    assert [by_place[place]["entity"] for place in firsts] == list(answer.tags)
    assert [by_place[place]["score"] for place in firsts] == pytest.approx(list(answer.scores), abs=close)


def same_answer(predictor: runtime.Predictor, said: Any, close: float) -> None:
    """Its score is the product of two shares, over all places of the context and the first of all."""
    question, context = INPUTS["question-answering"][1]
    (answer,) = predictor.predict((question, context))
    assert said["answer"] == answer.text
    (feature,) = predictor.task.features(predictor.task.examples([(question, context)]), predictor.encoder)
    (logits,) = predictor.run([feature])
    lead, offsets = feature.alignment
    allowed = np.exp(logits[[0, *range(lead, lead + len(offsets))]].astype(np.float64))
    shares = allowed / allowed.sum(axis=0)
    start = int(np.flatnonzero(offsets[:, 0] == answer.start)[0])
    end = int(np.flatnonzero(offsets[:, 1] == answer.end)[0])
    assert said["score"] == pytest.approx(shares[1 + start, 0] * shares[1 + end, 1], abs=close)


COMPARE: dict[str, Callable[..., None]] = {
    "text-classification": same_classes,
    "pair": same_pair,
    "token-classification": same_tags,
    "question-answering": same_answer,
}


@pytest.mark.long
def test_graphs_run_as_they_do_in_browsers(javascript: Path, artifacts: Path, tmp_path: Path) -> None:
    graphs = ["SequenceClassification-fp32/onnx/model.onnx", "SequenceClassification-int8/onnx/model_quantized.onnx"]
    sessions = [onnxruntime.InferenceSession(artifacts / graph) for graph in graphs]
    row = [2, 10, 20, 30, 40, 3]
    feeds = [
        {value.name: [1] * 6 if value.name == "attention_mask" else row if value.name == "input_ids" else [0] * 6
         for value in session.get_inputs()}
        for session in sessions
    ]  # fmt: skip
    requests = [{"task": "browser", "model": graph, "inputs": feed} for graph, feed in zip(graphs, feeds, strict=True)]
    (tmp_path / "asked.json").write_text(json.dumps({"folder": f"{artifacts}{os.sep}", "asked": requests}))
    said = json.loads(run_node(javascript, JS.name, tmp_path / "asked.json").splitlines()[-1])
    for session, feed, logits in zip(sessions, feeds, said, strict=True):
        here = session.run(None, {name: np.array([value]) for name, value in feed.items()})[0]
        assert np.abs(here[0] - logits).max() < 1e-3


@pytest.mark.long
def test_lines_of_the_page_run_in_node(javascript: Path, artifacts: Path) -> None:
    (code,) = blocks("js")
    shutil.copytree(artifacts / "SequenceClassification-int8", javascript / "smaller/best")
    (javascript / "page.mjs").write_text(code, encoding="utf-8")
    said = json.loads(run_node(javascript, "page.mjs").splitlines()[-1])
    (answer,) = runtime.load(javascript / "smaller/best", "onnxruntime", 1).predict("A quiet, moving film.")
    assert {label["label"]: label["score"] for label in said} == pytest.approx(answer.scores, abs=0.02)


def run_node(folder: Path, *words: str | Path) -> str:
    done = subprocess.run(["node", *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout
