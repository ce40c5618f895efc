"""Every task, every form of rows and answers: the same as `runtime.load(...).predict` over all rows in one go."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bulk_rows import inputs, near, records
from commands import Tersely
from tersely import runtime

Artifact = Callable[[str], Path]
ROWS = 40
"""Three parts of `small_parts`."""


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    names = list(rows[0])
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".txt":
        path.write_text("".join(row["text"] + "\n" for row in rows))
    else:
        mark = "," if path.suffix == ".csv" else "\t"
        path.write_text("\n".join([mark.join(names), *(mark.join(row.values()) for row in rows)]) + "\n")
    return path


def opened(path: Path) -> list[dict[str, Any]]:
    """Read answers with other people's readers."""
    if path.suffix == ".parquet":
        from pyarrow import parquet

        found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return found
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as stream:
        quoting = csv.QUOTE_MINIMAL if path.suffix == ".csv" else csv.QUOTE_NONE
        return list(csv.DictReader(stream, delimiter="," if path.suffix == ".csv" else "\t", quoting=quoting))


def parsed_cells(answer: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """The cells of one row of a table, with numbers and lists read from their JSON."""
    return {name: cell if isinstance(like[name], str) else json.loads(cell) for name, cell in answer.items()}


@pytest.mark.parametrize("kind", ["text", "labels", "number", "tags", "question"])
@pytest.mark.parametrize(
    ("input_form", "output_form"), [("jsonl", "csv"), ("csv", "parquet"), ("parquet", "tsv"), ("tsv", "jsonl")]
)
def test_answers_are_those_of_one_go(
    kind: str, input_form: str, output_form: str, predict: Tersely, artifact: Artifact, small_parts: int, tmp_path: Path
) -> None:
    rows = records(kind, ROWS)
    file, output = write(tmp_path / f"rows.{input_form}", rows), tmp_path / f"answers.{output_form}"
    shown = predict(artifact(kind), file, "--output", output, "--json")
    assert shown.code == 0, shown.err
    assert shown.json == {"output": str(output), "rows": ROWS}
    predictor = runtime.load(artifact(kind), "onnxruntime", 1)
    expected = [answer.as_json() for answer in predictor.predict(inputs(kind, rows))]
    found = opened(output)
    if output_form in ("csv", "tsv"):
        found = [parsed_cells(answer, like) for answer, like in zip(found, expected, strict=True)]
    assert near(found, expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([output.name, file.name])


def test_plain_texts_and_standard_input_give_the_same_bytes(
    predict: Tersely, artifact: Artifact, small_parts: int, tmp_path: Path
) -> None:
    file = write(tmp_path / "rows.txt", records("text", ROWS))
    predict(artifact("text"), file, "--output", tmp_path / "a.csv")
    predict(artifact("text"), "--output", tmp_path / "b.csv", stdin=file.read_text())
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    predict(artifact("text"), file, "--output", tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text() == predict(artifact("text"), file).out


def test_answers_with_tabs_and_line_ends_come_back_from_tables(
    predict: Tersely, artifact: Artifact, tmp_path: Path
) -> None:
    """A question's answer is a stretch of its context, with whatever stands there."""
    contexts = ["the\tdark\nriver\r\nbank", '"paris" is, the "capital"', "old"]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"question": "what", "context": text}) + "\n" for text in contexts))
    for name in ("a.jsonl", "a.csv", "a.tsv"):
        assert predict(artifact("question"), file, "--output", tmp_path / name).code == 0
    plain = [row["answer"] for row in opened(tmp_path / "a.jsonl")]
    assert any("\t" in answer or "\n" in answer for answer in plain)
    assert [row["answer"] for row in opened(tmp_path / "a.csv")] == plain
    cells = [row["answer"] for row in opened(tmp_path / "a.tsv")]
    assert [json.loads(cell) if cell.startswith('"') else cell for cell in cells] == plain


def test_small_file_gives_the_bytes_of_one_batch(predict: Tersely, artifact: Artifact, tmp_path: Path) -> None:
    """Up to a part's rows nothing is cut: what `predict` says, to the last digit."""
    rows = records("text", ROWS)
    output = tmp_path / "answers.jsonl"
    predict(artifact("text"), write(tmp_path / "rows.jsonl", rows), "--output", output, "--threads", "1")
    answers = runtime.load(artifact("text"), "onnxruntime", 1).predict(inputs("text", rows))
    assert output.read_text() == "".join(json.dumps(answer.as_json(), ensure_ascii=False) + "\n" for answer in answers)
