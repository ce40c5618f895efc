"""Hand-written artifacts and rows for them, and `tersely predict` in this process."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest

import tiny_artifacts
from commands import Ran, Tersely
from tersely.cli import main


@pytest.fixture
def predict(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tersely:
    """Run `tersely predict`: its exit code, standard output and standard error."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")

    def run(*words: str | Path, stdin: str | None = None) -> Ran:
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        capsys.readouterr()
        code = main(["predict", *map(str, words), "--engine", "onnxruntime"])
        caught = capsys.readouterr()
        return Ran(code, caught.out, caught.err)

    return run


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """An artifact for a task of `tiny_artifacts.TASKS`. Not to be written to."""
    made: dict[str, Path] = {}

    def make(kind: str = "text") -> Path:
        if kind not in made:
            made[kind] = tiny_artifacts.make(tmp_path_factory.mktemp("bulk") / kind, kind)
        return made[kind]

    return make


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    """Parts of sixteen rows."""
    monkeypatch.setattr(importlib.import_module("tersely.data.read"), "ROWS", 16)  # not the function of that name
    return 16
