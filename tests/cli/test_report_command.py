"""`tersely report` as users type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Tersely

RESULT = {
    "tersely_version": "0",
    "best": "mse128",
    "candidates": [{"name": "mse128", "score": 0.5, "size": 10}],
    "fp32": {"score": 0.75, "size": 40},
}


def test_report_writes_both_files_and_prints_their_paths(tersely: Tersely, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    shown = tersely("report", tmp_path)
    assert (shown.code, shown.err) == (0, "")
    html, markdown = map(Path, shown.out.splitlines())
    assert "mse128 scores score 50.00 (FP32 75.00) and is 4.00\u00a0× smaller." in html.read_text(encoding="utf-8")
    assert markdown.read_text(encoding="utf-8").splitlines()[2] == "# model: mse128"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.md", "result.json"]
    again = tersely("report", tmp_path, "--json")
    assert again.json == {"html": str(html), "md": str(markdown)}


@pytest.mark.parametrize("name", ["empty", "missing", "file.txt", "training"])
def test_what_is_no_finished_run_is_one_line_and_two(tersely: Tersely, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "result.json").write_text('{"step": 4}')
    shown = tersely("report", tmp_path / name)
    assert shown.code == 2
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith(f"tersely: {tmp_path / name}")
    assert not list(tmp_path.rglob("report.*"))


def test_folder_that_cannot_be_written_is_told(tersely: Tersely, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    (tmp_path / "report.html").mkdir()
    shown = tersely("report", tmp_path)
    assert shown.code == 2
    assert shown.err.count("\n") == 1
