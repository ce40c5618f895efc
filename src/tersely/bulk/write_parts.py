"""Answers to bytes, part by part, and parts to one file: json lines, csv, tsv, parquet."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UserError, missing_package

Answer = Mapping[str, Any]
Columns = Mapping[str, Any]

ROW_GROUP = 1 << 16
"""Rows of a row group of parquet: parts are far smaller than what its readers like."""


@dataclass(frozen=True)
class AnswerFormat:
    """How a kind of file is written: the bytes of a part, and all parts as one file."""

    suffixes: tuple[str, ...]
    part: Callable[[Sequence[Answer], Columns], bytes]
    join: Callable[[Iterable[Path], BinaryIO, Columns], None]
    check: Callable[[], None] = lambda: None


def format_of(output: str | Path) -> str:
    """Tell the format from the output's ending.

    >>> format_of("answers.csv"), format_of("answers.ndjson")
    ('csv', 'jsonl')
    """
    suffix = Path(output).suffix.lower()
    for name, form in FORMATS.items():
        if suffix in form.suffixes:
            form.check()
            return name
    known = ", ".join(suffix for form in FORMATS.values() for suffix in form.suffixes)
    what = f"The ending '{suffix}' is not known (option '--output')." if suffix else "The output's name has no ending."
    raise UserError(what, where=str(output), hint=f"Known: {known}.")


def json_lines(answers: Sequence[Answer], columns: Columns) -> bytes:
    """One object a line."""
    return "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers).encode()


def csv_rows(answers: Sequence[Answer], columns: Columns) -> bytes:
    """A row each, quoted where it must be; lists and objects stand in their cell as JSON."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([cell(answer[name]) for name in columns] for answer in answers)
    return stream.getvalue().encode()


def tsv_rows(answers: Sequence[Answer], columns: Columns) -> bytes:
    """A row each, without quoting; a text with a tab, a line end or a quote in front stands there as a JSON string."""
    rows = ("\t".join(_without_tabs(cell(answer[name])) for name in columns) for answer in answers)
    return "".join(f"{row}\n" for row in rows).encode()


def cell(value: Any) -> str:
    """A text as it is, anything else as JSON.

    >>> cell("fine"), cell(0.5), cell(["B", "O"])
    ('fine', '0.5', '["B", "O"]')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _without_tabs(text: str) -> str:
    unsafe = text.startswith('"') or any(mark in text for mark in "\t\r\n")
    return json.dumps(text, ensure_ascii=False) if unsafe else text


def _join(separator: str | None) -> Callable[[Iterable[Path], BinaryIO, Columns], None]:
    """Parts behind each other, below the names of the columns where lines do not carry them."""

    def join(parts: Iterable[Path], stream: BinaryIO, columns: Columns) -> None:
        if separator is not None:
            stream.write(f"{separator.join(columns)}\n".encode())
        for part in parts:
            with part.open("rb") as content:
                shutil.copyfileobj(content, stream, 1 << 20)

    return join


def _check_parquet() -> None:
    """Refuse, before any work, where pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise missing_package("pyarrow", "writing parquet") from error


def parquet_part(answers: Sequence[Answer], columns: Columns) -> bytes:
    """A small parquet file."""
    import pyarrow.parquet

    unknown = [name for name, form in columns.items() if form is None]
    rows = [{**answer, **{name: json.dumps(answer[name]) for name in unknown}} for answer in answers]
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=_schema(columns)), stream)
    return stream.getvalue()


def _join_parquet(parts: Iterable[Path], stream: BinaryIO, columns: Columns) -> None:
    """Gather row groups of a good size; never more than one of them is in memory."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetWriter(stream, _schema(columns)) as writer:
        tables: list[Any] = []
        for path in parts:
            tables.append(pyarrow.parquet.read_table(io.BytesIO(path.read_bytes())))
            if sum(table.num_rows for table in tables) >= ROW_GROUP:
                writer.write_table(pyarrow.concat_tables(tables))
                tables = []
        if tables:
            writer.write_table(pyarrow.concat_tables(tables))


def _schema(columns: Columns) -> Any:
    import pyarrow

    return pyarrow.schema([(name, _type(form)) for name, form in columns.items()])


def _type(form: Any) -> Any:
    """The type of a form; what has none is JSON in a string."""
    import pyarrow

    if isinstance(form, list):
        return pyarrow.list_(_type(form[0]))
    if isinstance(form, Mapping):
        return pyarrow.struct([(name, _type(inner)) for name, inner in form.items()])
    return {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), None: pyarrow.string()}[form]


FORMATS: Mapping[str, AnswerFormat] = {
    "jsonl": AnswerFormat((".jsonl", ".ndjson", ".json"), json_lines, _join(None)),
    "csv": AnswerFormat((".csv",), csv_rows, _join(",")),
    "tsv": AnswerFormat((".tsv",), tsv_rows, _join("\t")),
    "parquet": AnswerFormat((".parquet",), parquet_part, _join_parquet, _check_parquet),
}
