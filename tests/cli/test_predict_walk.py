"""A reader who follows `tersely predict` through the code meets few files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tersely
import tiny_artifacts

SCRIPT = Path(__file__).parents[2] / "docs" / "walk.py"


@pytest.fixture
def walk(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tracer of the docs."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import walk

    return walk


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "rows.tsv").write_text("text\na fox\nthe old river\n")
    return tmp_path / "rows.tsv"


def test_predict_passes_through_at_most_20_files(walk, rows, tmp_path, capsys):
    artifact = tiny_artifacts.make(tmp_path / "text")
    passed = walk.walk_command(["predict", str(artifact), str(rows), "--engine", "onnxruntime"]).files
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert {"cli/predict.py", "data/table.py", "tasks/sequence_classification.py", "engines/onnxruntime.py"} <= set(
        passed
    )
    assert len(passed) <= 20, passed


def test_an_int8_artifact_adds_one_file_of_the_engines(walk, rows, tmp_path):
    """The one that knows whether integer sums saturate here."""
    artifacts = tiny_artifacts.make(tmp_path / "text"), tiny_artifacts.make_int8(tmp_path / "int8")
    command = ["--engine", "onnxruntime"]
    plain, int8 = (walk.walk_command(["predict", str(folder), str(rows), *command]).files for folder in artifacts)
    assert [file for file in int8 if file not in plain] == ["engines/saturation.py"]


def test_the_tracer_is_no_file_of_the_package(rows, tmp_path):
    """Called from within the package, its own path begins with that of the package."""
    package = Path(tersely.__file__).parent
    command = [
        sys.executable,
        os.path.relpath(SCRIPT, package),
        "predict",
        tiny_artifacts.make(tmp_path / "text"),
        rows,
    ]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, check=True)
    assert "cli/predict.py" in done.stderr
    assert "walk.py" not in done.stderr
