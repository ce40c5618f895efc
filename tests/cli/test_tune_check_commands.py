from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import Tersely
from sealing import write_version_1
from tersely.artifact import read
from tersely.cli import main
from tersely.engines.cpu import CLASSES, cpu
from tersely.engines.saturation import saturates
from tiny_artifacts import OWN, PLAIN, SHARED, change_weight, copy, make, make_int8, reseal

QUICK: tuple[Any, ...] = ("--seconds", "0.01", "--batch_sizes", "1", "--threads", "1")
HEAVY = ("torch", "transformers", "onnx")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TERSELY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An INT8 artifact. Not to be written to."""
    return make_int8(tmp_path_factory.mktemp("artifacts") / "int8")


def test_check_tells_each_graph_on_each_engine(tersely: Tersely, int8: Path) -> None:
    shown = tersely("check", int8, "--threads", "1")
    assert shown.code == 0, shown.err
    head, *lines = shown.out.splitlines()
    assert head == f"{int8} on CPU class {cpu().cpu_class} ({cpu().name})"
    assert sorted(line.split(", int8: 0 of 32 answers moved")[0] for line in lines) == [
        f"ok: {OWN} on onnxruntime", f"ok: {SHARED} on onnxruntime", f"ok: {SHARED} on openvino",
    ]  # fmt: skip
    assert all("% of the answers are FP32's" in line for line in lines)
    assert shown.err == ""


def test_check_as_json(tersely: Tersely, int8: Path) -> None:
    shown = tersely("check", int8, "--json", "--engine", "openvino")
    assert shown.code == 0
    assert shown.json["ok"] is True
    assert shown.json["cpu"] == {"class": cpu().cpu_class, "name": cpu().name}
    (replay,) = shown.json["replays"]
    assert (replay["graph"], replay["engine"], replay["precision"], replay["verdict"]) == (
        SHARED,
        "openvino",
        "int8",
        "ok",
    )
    assert replay["change"]["within"] is True
    assert replay["change"]["answers"] == 32


def test_check_fails_where_predictions_moved_and_says_what_to_do(tersely: Tersely, tmp_path: Path) -> None:
    folder = make(tmp_path / "moved")
    change_weight(folder, PLAIN, "second", lambda weight: -weight)
    shown = tersely("check", folder)
    assert shown.code == 1
    lines = shown.out.splitlines()
    assert sum(line.startswith(f"moved: {PLAIN} on ") for line in lines) == 2
    assert lines[-1].startswith("What to do: install the engine's version that the artifact was made with, or make")
    assert tersely("check", folder, "--json").code == 1
    assert tersely("check", folder, "--json").json["ok"] is False


def test_check_names_an_engine_that_is_still_right(tersely: Tersely, int8: Path, tmp_path: Path) -> None:
    folder = copy(int8, tmp_path / "half")
    (folder / SHARED).write_bytes(b"no graph")
    reseal(folder, graphs=tuple(replace(g, engines=g.engines[:1]) for g in read(folder, verify=False).manifest.graphs))
    shown = tersely("check", folder)
    assert shown.code == 1
    assert f"failed: {SHARED} on openvino, int8: OpenVINO cannot load this graph" in shown.out
    assert "What to do: use --engine onnxruntime, or install" in shown.out


def test_tune_shows_cells_and_choice_and_where_it_is_kept(tersely: Tersely, int8: Path, cache: Path) -> None:
    shown = tersely("tune", int8, *QUICK)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0] == f"speed on CPU class {cpu().cpu_class} ({cpu().name}, {cpu().cores} cores)"
    assert lines[1].split() == ["graph", "engine", "threads", "batch", "length", "ms", "×", "spread"]
    assert len(lines) == 2 + 3 + 1 + 1
    assert lines[-2].startswith("1 thread: onnx/model_")
    assert lines[-1] == f"Remembered in {cache / 'tune.json'}: engine 'auto' takes it from now on."
    assert json.loads((cache / "tune.json").read_text())


def test_tune_as_json(tersely: Tersely, int8: Path, cache: Path) -> None:
    shown = tersely("tune", int8, *QUICK, "--json")
    assert shown.json["cpu"] == {"class": cpu().cpu_class, "name": cpu().name, "cores": cpu().cores}
    assert shown.json["remembered_in"] == str(cache / "tune.json")
    assert {(cell["graph"], cell["engine"]) for cell in shown.json["cells"]} == {
        (OWN, "onnxruntime"), (SHARED, "onnxruntime"), (SHARED, "openvino"),
    }  # fmt: skip
    for cell in shown.json["cells"]:
        assert cell["spread"][0] <= cell["ratio"] <= cell["spread"][1]
        assert (cell["threads"], cell["batch"], cell["length"]) == (1, 1, 32)
    (chosen,) = shown.json["chosen"]
    best = max(shown.json["cells"], key=lambda cell: cell["ratio"])
    assert (chosen["graph"], chosen["engine"]) == (best["graph"], best["engine"])


def test_tune_says_who_was_left_out(tersely: Tersely, int8: Path, tmp_path: Path) -> None:
    folder = copy(int8, tmp_path / "half")
    change_weight(folder, OWN, "second_quantized", lambda weight: -weight)
    shown = tersely("tune", folder, *QUICK)
    assert shown.code == 0
    assert f"left out: {OWN} onnxruntime: Its answers are not those recorded." in shown.out


def test_artifact_for_other_classes_is_told_in_one_line(tersely: Tersely, tmp_path: Path) -> None:
    folder = make(tmp_path / "elsewhere")
    others = tuple(name for name in CLASSES if name != cpu().cpu_class)
    reseal(folder, graphs=tuple(replace(graph, cpu_classes=others) for graph in read(folder).manifest.graphs))
    shown = tersely("predict", folder, stdin="a fox\n")
    assert shown.code == 0
    assert shown.err.startswith(f"tersely: warning: {folder}: The artifact was made for the CPU classes ")
    assert shown.err.count("\n") == 1
    assert json.loads(shown.out)["label"] in ("bad", "fair", "good")


@pytest.mark.parametrize("command", ["predict", "check", "tune", "evaluate", "benchmark", "predict --workers"])
def test_artifact_of_format_version_1_runs_with_one_line(tersely: Tersely, tmp_path: Path, command: str) -> None:
    folder, rows = write_version_1(make(tmp_path / "old")), tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\na fox\tgood\na dog\tbad\n")
    words: dict[str, list[Any]] = {
        "predict": [folder, rows],
        "check": [folder],
        "tune": [folder, *QUICK],
        "evaluate": ["--model_name_or_path", folder, "--eval_file", rows],
        "benchmark": [folder, "--lengths", "8", "--engines", "onnxruntime", *QUICK],
        "predict --workers": [folder, rows, "--workers", "1", "--output", tmp_path / "answers.csv"],
    }
    shown = tersely(command.split()[0], *words[command])
    assert shown.code == 0
    warnings = [line for line in shown.err.splitlines() if "warning" in line.lower()]
    start = f"tersely: warning: {folder}: The artifact has format version 1: no checksum covers its tersely.json"
    assert [line.startswith(start) for line in warnings] == [True]


@pytest.mark.parametrize("command", ["predict", "check", "tune"])
def test_changed_manifest_is_told_in_one_line(tersely: Tersely, tmp_path: Path, command: str) -> None:
    folder = make(tmp_path / "changed")
    manifest = folder / "tersely.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"fair"', b'"fail"'))
    shown = tersely(command, folder, stdin="a fox\n")
    said = "The manifest has changed since it was written. Copy the whole folder again."
    assert (shown.code, shown.out, shown.err) == (2, "", f"tersely: {manifest}: {said}\n")


def test_warnings_of_other_libraries_are_shown_as_python_does(
    tersely: Tersely, capsys: pytest.CaptureFixture[str]
) -> None:
    from tersely.cli import _show_warning

    before = warnings.showwarning
    tersely("--version")
    assert warnings.showwarning is before
    capsys.readouterr()
    _show_warning("old", DeprecationWarning, "their.py", 3)
    assert capsys.readouterr().err.startswith("their.py:3: DeprecationWarning: old")


def test_info_says_what_was_measured(tersely: Tersely) -> None:
    measured = tersely("info", "--json").json["cpu"]["int8_measured"]
    assert set(measured) == {"onnxruntime", "openvino"}
    for engine, said in measured.items():
        assert (said == "sums saturate") == saturates(engine)
        assert f"INT8 on {engine}, measured: {said}" in tersely("info").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "no/such"], "tersely: no/such: There is no such folder. Check the path.\n"),
        (["tune", "no/such"], "tersely: no/such: There is no such folder. Check the path.\n"),
        (["check"], "tersely: A model is needed. Write: tersely check MODEL …\n"),
        (["tune", "ARTIFACT", "--threads", "0"], "The '--threads' option must hold numbers of at least 1. Got 0.\n"),
        (["tune", "ARTIFACT", "--seconds", "-1"], "The '--seconds' option must be above 0. Got -1.0.\n"),
        (
            ["check", "ARTIFACT", "--engine", "torch"],
            "has no graph for engine 'torch'. It has: onnxruntime, openvino.\n",
        ),
        (["check", "ARTIFACT", "--threads", "0"], "The '--threads' option must be at least 1. Got 0.\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_refused_in_one_line(
    words: list[str], said: str, tersely: Tersely, int8: Path, cache: Path
) -> None:
    shown = tersely(*(str(int8) if word == "ARTIFACT" else word for word in words))
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.endswith(said)
    assert shown.err.count("\n") == 1
    assert not (cache / "tune.json").exists()


def test_both_run_without_what_trains(int8: Path) -> None:
    code = (
        "import sys; from tersely.cli import main\n"
        f"assert main(['check', {str(int8)!r}, '--threads', '1']) == 0\n"
        f"assert main(['tune', {str(int8)!r}, *{list(QUICK)!r}]) == 0\n"
        f"assert not {set(HEAVY)!r} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    shown = capsys.readouterr().out
    assert "  tune " in shown
    assert "  check " in shown
