"""`tersely compress` as users type it: small models, all tasks, graphs of other exporters."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import Tersely
from compressible import DEV, Place, layer_name, write_place
from folders import digests
from graphs.other_exporters import fuse, torchscript
from models import build
from tersely import runtime
from tersely.artifact import read

pytestmark = pytest.mark.usefixtures("short_timings")

Folder = Callable[..., Path]
KINDS = {"SequenceClassification": "text", "TokenClassification": "words", "QuestionAnswering": "question"}
INPUTS: dict[str, Any] = {
    "SequenceClassification": "the dark river",
    "TokenClassification": "the dark river",
    "QuestionAnswering": ("what is the capital", "the dark river"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return write_place(tmp_path_factory.mktemp("places") / "stack", harmful=2)


def words(place: Place, output: Path, *more: str | Path) -> list[str | Path]:
    files: list[str | Path] = ["--train_file", place.train, "--eval_file", place.dev]
    default = [] if "--strategy" in more else ["--strategy", "ptq"]
    return ["compress", "--input_infer_model_path", place.graph, *files, "--output_dir", output, *default, *more]


ONNXRUNTIME_MSE = ("--engines", "onnxruntime", "--algo_list", "mse")


def test_json_is_the_content_of_the_result(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    shown = tersely(
        *words(place, tmp_path / "out", "--strategy", "ptq", "--strategy", "dynamic", *ONNXRUNTIME_MSE, "--json")
    )
    assert shown.code == 0, shown.err
    assert shown.json == json.loads((tmp_path / "out" / "result.json").read_text())
    assert {candidate["strategy"] for candidate in shown.json["candidates"]} == {"ptq", "dynamic"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "best",
        "candidates",
        "report.html",
        "report.md",
        "result.json",
    ]


def test_table_says_what_a_stranger_asks(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    more = ("--test_file", place.test, "--strategy", "dynamic", "--strategy", "ptq", "--sensitivity", *ONNXRUNTIME_MSE)
    shown = tersely(*words(place, tmp_path / "out", *more))
    assert shown.code == 0, shown.err
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 160
    assert lines[0].startswith(f"stack: {DEV} eval rows, which also chose, 128 rows calibrated; CPU class ")
    table = {line.split()[0]: line.split() for line in lines[2:5]}
    assert table["FP32"][1] == "100.00"
    best = table[content["best"]]
    assert best[1] == "(best)"
    candidate = next(candidate for candidate in content["candidates"] if candidate["name"] == content["best"])
    assert best[2] == f"{100 * candidate['score']:.2f}"
    assert lines[3].startswith(content["best"])  # first after FP32
    for text in (
        f"Best: {content['best']}, on {candidate['engine']}.",
        "  not ",
        "  Pareto\n",
        "Pareto *: no other candidate is as good in score, speed and size and better in one of them.",
        "Memory of the process after loading and a first batch: ",
        "4 layers and 0 tables of the best are INT8; float: 1 (too small to pay)",
        "Harm of each layer alone in INT8 (mean |Δlogit|), the largest first:",
        "60 test rows, which chose nothing: FP32 100.00, best ",
        "dynamic, before and after",
        f"The artifact is {tmp_path / 'out' / 'best'}: ",
        f"The report is {tmp_path / 'out' / 'report.html'}; for terminals report.md beside it.",
        f"Next: tersely predict {tmp_path / 'out' / 'best'}",
    ):
        assert text in shown.out, text
    assert layer_name(0) in shown.out
    slower = [batch for batch, speed in candidate["speed_by_batch"].items() if speed["ratio"] < 1]
    assert ("Slower than FP32 on this CPU" in shown.out) == bool(slower)
    assert tersely("predict", tmp_path / "out" / "best", stdin="the dark river\n").code == 0


def test_gate_fails_with_one_and_writes_everything(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    gate = ("--weight_quantize_type", "abs_max", "--max_drop", "0", *ONNXRUNTIME_MSE, "--calibration_rows", "64")
    shown = tersely(*words(place, tmp_path / "out", *gate, "--json"))
    assert shown.code == 1
    assert shown.err.splitlines()[-1].startswith(f"tersely: {tmp_path / 'out'}: No candidate keeps the drop to 0.00")
    assert shown.json["met_max_drop"] is False
    read(tmp_path / "out" / "best")


@pytest.mark.slow
def test_table_tells_what_was_left_out_and_what_is_the_same(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    grid = ("--batch_size_list", "4", "--batch_num_list", "1", "2", "4")
    many = ("--algo_list", "abs_max", "avg", "mse", "KL", *grid)
    shown = tersely(*words(place, tmp_path / "out", *many, "--engines", "onnxruntime", "--cpu_classes", "vnni"))
    assert shown.code == 0, shown.err
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["screened_out"]
    assert f"Left out after a look at a few rows: {content['screened_out'][0]['name']}" in shown.out
    assert content["same"]
    for name, twin in content["same"].items():
        assert f"{name} is the same as {twin}." in shown.out
    assert ("scored here with exact sums in floats" in shown.out) == content["candidates"][0]["emulated"]


@pytest.mark.slow
def test_gate_is_met_by_leaving_a_layer_float(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    gate = ("--weight_quantize_type", "abs_max", "--max_drop", "0.1", *ONNXRUNTIME_MSE)
    shown = tersely(*words(place, tmp_path / "out", *gate))
    assert shown.code == 0
    assert "leaving 1 of 4 layers float" in shown.err
    assert "drop above --max_drop" in shown.out


def test_finished_run_is_refused_then_replaced_in_the_present_folder(
    tersely: Tersely, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    command = words(place, Path(), "--strategy", "dynamic", "--engines", "onnxruntime")
    assert tersely(*command).code == 0
    refused = tersely(*command)
    assert refused.code == 2
    assert "holds a finished run" in refused.err
    over = tersely(*command, "--overwrite_output_dir", "--seed", "7")
    assert over.code == 0, over.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best", "candidates", "notes.txt", "report.html", "report.md", "result.json",
    ]  # fmt: skip
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_data_set_by_name_needs_no_training_rows(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    (tmp_path / "data" / "mine").mkdir(parents=True)
    shutil.copy(place.dev, tmp_path / "data" / "mine" / "dev.tsv")
    command = [
        "compress",
        "--input_infer_model_path",
        place.graph,
        "--dataset",
        "mine",
        "--data_dir",
        tmp_path / "data",
        "--strategy",
        "ptq",
    ]
    shown = tersely(*command, "--output_dir", tmp_path / "out", *ONNXRUNTIME_MSE, "--calibration_rows", "8", "--json")
    assert shown.code == 0, shown.err
    assert shown.json["notes"][0].startswith("There are no training rows: ")
    assert "There are no training rows: " in shown.err


@pytest.mark.slow
@pytest.mark.parametrize("head", KINDS)
def test_model_folder_of_each_task(
    head: str, tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    folder = model_folder(head)
    before = digests(folder)
    more = ("--strategy", "ptq+embeddings", "--strategy", "dynamic+embeddings", "--max_seq_length", "48")
    rows = ("--train_file", files[KINDS[head]], "--eval_file", files[KINDS[head]])
    command: list[Any] = ["compress", folder, *rows]
    shown = tersely(*command, "--output_dir", tmp_path / "out", *more, "--input_dtype", "int32", "--json")
    assert shown.code == 0, shown.err
    assert digests(folder) == before
    for name in ("best", *(candidate["path"] for candidate in shown.json["candidates"])):
        manifest = read(tmp_path / "out" / name).manifest
        assert (manifest.input_dtype, manifest.task["max_seq_length"]) == ("int32", 48)
        for engine in ("onnxruntime", "openvino"):
            loaded = runtime.load(tmp_path / "out" / name, engine=engine)
            assert len(loaded.predict(INPUTS[head])) == 1
    # With `dynamic` an answer depends on the rows of its batch.
    ptq = next(candidate for candidate in shown.json["candidates"] if candidate["strategy"] == "ptq+embeddings")
    there = ("evaluate", tmp_path / "out" / ptq["path"], "--engine", ptq["engine"])
    evaluated = tersely(*there, "--eval_file", files[KINDS[head]], "--json")
    assert (evaluated.json["rows"], evaluated.json["score"]) == (ptq["rows"], pytest.approx(ptq["score"], abs=1e-9))
    assert tersely("check", tmp_path / "out" / "best").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("family", [pytest.param("deberta_v2", marks=pytest.mark.long), "albert"])
def test_model_folder_of_other_families(family: str, tersely: Tersely, tmp_path: Path) -> None:
    folder = build(tmp_path / "model", family, hidden=64, layers=2)
    shown = tersely(
        "compress", "--model_name_or_path", folder, "--strategy", "ptq+embeddings", "--strategy", "dynamic",
        "--train_file", _texts(tmp_path), "--output_dir", tmp_path / "out", "--json",
    )  # fmt: skip
    assert shown.code == 0, shown.err
    assert [candidate["score"] for candidate in shown.json["candidates"]] == [None] * 4
    assert min(candidate["same_answer"] for candidate in shown.json["candidates"]) > 0.8
    assert sum(layer["precision"] == "int8" for layer in shown.json["layers"]) >= 6
    assert runtime.load(tmp_path / "out" / "best").predict("the dark river")[0].label.startswith("LABEL_")


def _texts(folder: Path) -> Path:
    from learnable import rows, single, tsv

    return tsv(folder / "texts.tsv", [{"text": row["text"]} for row in rows(single, 60)])


@pytest.mark.slow
def test_graphs_of_other_exporters(tersely: Tersely, tmp_path: Path) -> None:
    from tersely.models.torch_folder import load_module

    folder = build(tmp_path / "model", "bert", hidden=32, layers=2)
    graphs = tmp_path / "graphs"
    graphs.mkdir()
    torchscript(load_module(folder), graphs / "torchscript.onnx")
    fuse(graphs / "torchscript.onnx", graphs / "fused.onnx", "fused")
    before = digests(folder, graphs)
    for name in ("torchscript", "fused"):
        shown = tersely(
            "compress", "--model_name_or_path", folder, "--input_infer_model_path", graphs / name, "--strategy", "ptq",
            "--train_file", _texts(tmp_path), "--output_dir", tmp_path / name, *ONNXRUNTIME_MSE, "--json",
        )  # fmt: skip
        assert shown.code == 0, shown.err
        assert shown.json["model"] == name
        assert shown.json["fp32"]["sha256"] == before[graphs / f"{name}.onnx"]
        (candidate,) = shown.json["candidates"]
        assert candidate["same_answer"] > 0.9
        read(tmp_path / name / "best")
        quantized = {layer["name"] for layer in shown.json["layers"] if layer["precision"] == "int8"}
        # Of 32 wide layers only these have outputs enough, and q, k and v together where they are fused.
        assert {f"bert.encoder.layer.{layer}.intermediate.dense.weight" for layer in range(2)} <= quantized
        assert all("intermediate" in layer_name or "qkv" in layer_name for layer_name in quantized)
    assert digests(folder, graphs) == before


@pytest.mark.slow
def test_command_runs_in_a_process_of_its_own(place: Place, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tersely", *map(str, words(place, tmp_path / "out", *ONNXRUNTIME_MSE, "--json"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "out" / "result.json").read_text())
