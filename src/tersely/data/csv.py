"""csv: RFC 4180 quoting, UTF-8, with a header or without."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from . import table
from .header import is_header
from .lines import beginning, lines

SEPARATORS = (",", ";", "\t", "|")


def records(
    path: Path, header: bool | None = None, delimiter: str | None = None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    r"""Give (line, record); the line is where the record starts, though a quoted field may span several.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text('text,label\n"good, really",1\n')
    >>> list(records(file))
    [(2, {'text': 'good, really', 'label': '1'})]
    """
    separator = separator_of(path) if delimiter is None else delimiter
    if len(separator) != 1 or separator in '\r\n"':
        raise UserError(f"The 'delimiter' option must be one character, no quote or line end. Got {delimiter!r}.")
    return table.records(str(path), rows(path, separator), header, f"{separator!r} or quote")


def separator_of(path: Path) -> str:
    """Take the comma, unless the first line is a header only when cut at another usual mark."""
    first = beginning(path).split("\n", 1)[0]
    for separator in SEPARATORS:
        fields = first.rstrip("\r").split(separator)
        if len(fields) > 1 and is_header([field.strip('"') for field in fields]):
            return separator
    return ","


def rows(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Give (line where it starts, fields) of each record that is not blank."""
    reader = csv.reader((line for _, line in lines(path)), delimiter=separator, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(
                f"The row is not valid csv: {error}.",
                where=f"{path}:{start}",
                hint='A quote inside a quoted field is written "", and every quoted field must be closed. '
                "Texts beyond 131072 characters: use jsonl.",
            ) from error
        if fields and (len(fields) > 1 or fields[0].strip()):
            yield start, fields
