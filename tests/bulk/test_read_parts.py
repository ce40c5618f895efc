"""Parts of a file hold what the file holds when it is read at once."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

import tiny_artifacts
from bulk_rows import records
from tersely.data import RowFile, read
from tersely.errors import Failure, UserError
from tersely.tasks import Columns

TASK = tiny_artifacts.TASKS["text"]
READER = partial(TASK.read, columns=Columns(), labelled=False)


def jsonl(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_parts_are_the_file_in_its_order(tmp_path: Path, small_parts: int) -> None:
    file = jsonl(tmp_path / "rows.jsonl", records("text", 50))
    rows = RowFile.checked(file, READER)
    parts = list(rows)
    assert (rows.rows, [len(part.examples) for part in parts]) == (50, [16, 16, 16, 2])
    assert [example for part in parts for example in part.examples] == READER(read(file))
    assert parts[1].where == f"{file}:17-32"


def test_column_that_a_later_part_brings_counts_for_all(tmp_path: Path, small_parts: int) -> None:
    """As when the file is read at once: row 1 lacks the second text that rows of the third part have."""
    rows = records("text", 50)
    for row in rows[32:]:
        row["text_pair"] = "late"
    file = jsonl(tmp_path / "rows.jsonl", rows)
    with pytest.raises(UserError) as at_once:
        READER(read(file))
    with pytest.raises(UserError) as in_parts:
        RowFile.checked(file, READER)
    assert str(in_parts.value) == str(at_once.value)
    assert f"{file}:1:" in str(in_parts.value)


def test_column_of_no_matter_may_come_late(tmp_path: Path, small_parts: int) -> None:
    rows = records("text", 50)
    rows[39]["note"] = "late"
    file = jsonl(tmp_path / "rows.jsonl", rows)
    found = [example for part in RowFile.checked(file, READER) for example in part.examples]
    assert found == READER(read(file))


def test_file_that_changes_while_it_is_read_is_told(tmp_path: Path, small_parts: int) -> None:
    file = jsonl(tmp_path / "rows.jsonl", records("text", 50))
    rows = RowFile.checked(file, READER)
    jsonl(file, records("text", 51))
    with pytest.raises(Failure, match="The file changed while it was read: it had 50 rows, now 51"):
        list(rows)
