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

from ..errors import UserError
from . import write_parquet

Answer = Mapping[str, Any]
Columns = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
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
    for name, one in FORMATS.items():
        if suffix in one.suffixes:
            one.check()
            return name
    known = ", ".join(suffix for one in FORMATS.values() for suffix in one.suffixes)
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


FORMATS: Mapping[str, Format] = {
    "jsonl": Format((".jsonl", ".ndjson", ".json"), json_lines, _join(None)),
    "csv": Format((".csv",), csv_rows, _join(",")),
    "tsv": Format((".tsv",), tsv_rows, _join("\t")),
    "parquet": Format((".parquet",), write_parquet.part, write_parquet.join, write_parquet.check),
}
