"""What is wrong is one line that names file, line or option; exit code 2; nothing is written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bulk_rows import records
from commands import Ran, Tersely

Artifact = Callable[[str], Path]


def refused(shown: Ran, said: str, folder: Path, before: set[str]) -> None:
    assert shown.code == 2
    assert shown.err.startswith("tersely: ")
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == before


BAD = {
    "missing column": ("rows.csv", b"body\nfine\n", "rows.csv: There is no text column. Columns here: body."),
    "not utf-8": ("rows.txt", b"fine\n" * 40 + b"\xff\n", "rows.txt:41: The file is not UTF-8: byte 0xff"),
    "fields": ("rows.tsv", b"text\tlabel\n" + b"fine\t1\n" * 39 + b"fine\n", "rows.tsv:41: The row has 1 fields, 2"),
    "quotes": ("rows.csv", b"text\n" + b"fine\n" * 39 + b'"open\n', "rows.csv:41: The row is not valid csv"),
    "json": ("rows.jsonl", b'{"text": "a"}\n' * 40 + b"{\n", "rows.jsonl:41:1: The json is corrupt"),
    "no text": ("rows.jsonl", b'{"text": "a"}\n' * 40 + b'{"text": 1}\n', "rows.jsonl:41: Column 'text' must hold"),
    "empty": ("rows.jsonl", b"", "rows.jsonl: The file is empty."),
    "not parquet": ("rows.parquet", b"text\n", "rows.parquet: The file is not parquet."),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_row_of_a_later_part_is_named_before_any_work(
    case: str, predict: Tersely, artifact: Artifact, small_parts: int, tmp_path: Path
) -> None:
    name, content, said = BAD[case]
    (tmp_path / name).write_bytes(content)
    shown = predict(artifact("text"), tmp_path / name, "--output", tmp_path / "out.jsonl")
    refused(shown, said, tmp_path, {name})


@pytest.mark.parametrize(
    ("output", "more", "said"),
    [
        ("out.xlsx", [], "out.xlsx: The ending '.xlsx' is not known (option '--output'). Known: .jsonl"),
        ("out", [], "out: The output's name has no ending. Known: .jsonl"),
        ("rows.jsonl", ["--overwrite"], "rows.jsonl: The output is the file with the rows"),
        ("there.jsonl", [], "there.jsonl: The output exists (option '--output'). Replace it with --overwrite."),
        ("no/out.jsonl", [], "no/out.jsonl: There is no such folder (option '--output')."),
        ("x" * 246 + ".jsonl", [], "The output cannot be written: File name too long (option '--output')."),
        ("out.jsonl", ["--workers", "0"], "The '--workers' option must be at least 1. Got 0."),
        ("out.jsonl", ["--threads", "0"], "The '--threads' option must be at least 1. Got 0."),
        (None, ["--workers", "2"], "The '--workers' option has no effect without --output."),
        (None, ["--ray", "local"], "The '--ray' option has no effect without --output."),
        (None, ["--overwrite"], "The '--overwrite' option has no effect without --output."),
    ],
)
def test_output_that_cannot_be_is_refused(
    output: str | None, more: list[str], said: str, predict: Tersely, artifact: Artifact, tmp_path: Path
) -> None:
    file, there = tmp_path / "rows.jsonl", tmp_path / "there.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in records("text", 3)))
    there.write_text("mine\n")
    words = [] if output is None else ["--output", tmp_path / output]
    refused(predict(artifact("text"), file, *words, *more), said, tmp_path, {file.name, there.name})
    assert there.read_text() == "mine\n"
    assert len(file.read_text().splitlines()) == 3


def test_overwrite_replaces_an_output(predict: Tersely, artifact: Artifact, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("old\n")
    shown = predict(artifact("text"), "--output", tmp_path / "out.jsonl", "--overwrite", stdin="the dark river\n")
    assert shown.code == 0, shown.err
    assert "label" in json.loads((tmp_path / "out.jsonl").read_text())


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_may_not_be_written_is_refused(predict: Tersely, artifact: Artifact, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    shown = predict(artifact("text"), "--output", tmp_path / "out.jsonl", stdin="the dark river\n")
    tmp_path.chmod(0o755)
    refused(shown, "The output cannot be written: Permission denied (option '--output').", tmp_path, set())


@pytest.mark.parametrize("option", [["--workers", "2"], ["--ray", "local"]])
def test_model_folder_has_no_workers(option: list[str], predict: Tersely, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    shown = predict(model, "--output", tmp_path / "out.jsonl", *option, stdin="fine\n")
    refused(shown, f"The '{option[0]}' option needs an artifact", tmp_path, {"model"})


def test_package_that_is_missing_is_named(
    predict: Tersely, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    shown = predict(artifact("text"), "--output", tmp_path / "out.jsonl", "--ray", "local", stdin="fine\n")
    refused(shown, 'Install it with: pip install "ray>=', tmp_path, set())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    shown = predict(artifact("text"), "--output", tmp_path / "out.parquet", stdin="fine\n")
    refused(shown, "Install it with: pip install pyarrow", tmp_path, set())
