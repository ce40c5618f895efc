"""Tables: csv with RFC 4180's quoting; tsv by GLUE's rules, in which quotes are text. With a header or without."""

from __future__ import annotations

import csv
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from .rows import bare_lines, beginning, lines

log = logging.getLogger(__name__)

SEPARATORS = (",", ";", "\t", "|")
# GLUE's QQP holds a few rows broken by tabs and line ends inside questions; everybody's reader leaves them out
# (`datasets` and TFDS alike), so scores are comparable only if ours does.
BROKEN_AT_THE_SOURCE = frozenset({("id", "qid1", "qid2", "question1", "question2", "is_duplicate")})
USUAL = """
text sentence sentence1 sentence2 text_a text_b text1 text2 text_pair premise hypothesis query review comment title
content document body question question1 question2 context answer answers words tokens tags ner_tags label labels
label_desc category class target score sentiment quality gold_label is_duplicate #1_string #2_string id idx index
"""
KNOWN = frozenset(USUAL.split())
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
FEWEST = 8
"""Rows that it takes to doubt the one before them."""
MOST = 1000
"""Different last fields beyond which they are no labels."""


def csv_records(path: Path, header: bool | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    r"""Give (line, record); the line is where the record starts, though a quoted field may span several.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text('text,label\n"good, really",1\n')
    >>> list(csv_records(file))
    [(2, {'text': 'good, really', 'label': '1'})]
    """
    separator = _separator_of(path)
    return _named_fields(str(path), _csv_rows(path, separator), header, f"{separator!r} or quote")


def _separator_of(path: Path) -> str:
    """Take the comma, unless the first line is a header only when cut at another usual mark."""
    first = beginning(path).split("\n", 1)[0]
    for separator in SEPARATORS:
        fields = first.rstrip("\r").split(separator)
        if len(fields) > 1 and is_header([field.strip('"') for field in fields]):
            return separator
    return ","


def _csv_rows(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
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


def tsv_records(path: Path, header: bool | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    r"""Give (line, record) of each line that is not blank.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.tsv"
    >>> _ = file.write_text('"Good," he said\t1\n')
    >>> list(tsv_records(file))
    [(1, {'text': '"Good," he said', 'label': '1'})]
    """
    rows = ((number, line.split("\t")) for number, line in bare_lines(path) if line.strip())
    return _named_fields(str(path), rows, header, "tab")


def _named_fields(
    source: str, rows: Iterable[tuple[int, list[str]]], header: bool | None, separator: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Name the fields of each (line, fields); rows of another width than the first are refused."""
    names: tuple[str, ...] | None = None
    doubt: Doubt | None = None
    count = broken = 0
    for line, fields in rows:
        if names is None:
            if header or (header is None and is_header(fields)):
                names = header_names(fields, f"{source}:{line}")
                continue
            names = default_names(len(fields))
            if header is None and "label" in names:
                doubt = Doubt(fields, f"{source}:{line}")
        if len(fields) != len(names):
            if names in BROKEN_AT_THE_SOURCE:
                broken += 1
                continue
            what = f"The row has {len(fields)} fields, {len(names)} expected ({', '.join(names)})."
            raise UserError(what, where=f"{source}:{line}", hint=f"Check for a stray or missing {separator}.")
        count += 1
        if doubt is not None and count > 1:
            doubt.look_at(fields[-1])
        yield line, dict(zip(names, fields, strict=True))
    if broken:
        log.warning("%s: %d broken rows left out, as is usual for this corpus.", source, broken)
    if doubt is not None:
        doubt.settle()
    if not count:
        raise UserError("The file has a header but no rows.", where=source)


def is_header(fields: Sequence[str]) -> bool:
    """Tell names of columns from data: distinct, none a number, at least one a usual name.

    >>> is_header(["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]), is_header(["a fine film", "1"])
    (True, False)
    """
    names = [field.strip().lower().replace(" ", "_") for field in fields]
    named = [name for name in names if name]
    return (
        len(set(named)) == len(named)
        and not any(NUMBER.fullmatch(name) for name in named)
        and not KNOWN.isdisjoint(named)
    )


def header_names(fields: Sequence[str], where: str) -> tuple[str, ...]:
    """Take a header's fields as names; one left blank is called by its place.

    >>> header_names(["", "text", "label"], "a.csv:1")
    ('column_1', 'text', 'label')
    """
    names = tuple(field.strip() or f"column_{place}" for place, field in enumerate(fields, start=1))
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"The header names the column '{name}' twice.", where=where, hint="Rename one of them.")
    return names


def default_names(width: int) -> tuple[str, ...]:
    """Name the columns of a table without a header.

    >>> default_names(2), default_names(4)
    (('text', 'label'), ('column_1', 'column_2', 'column_3', 'column_4'))
    """
    usual = {1: ("text",), 2: ("text", "label"), 3: ("text", "text_pair", "label")}
    return usual.get(width, tuple(f"column_{place}" for place in range(1, width + 1)))


class Doubt:
    """A first row without any usual name was taken as data, its last field as a label: is that like the others?

    A header in other words, `评论` and `情感`, would else become a row with a label of its own, without a word.
    """

    def __init__(self, fields: Sequence[str], where: str) -> None:
        self.fields, self.where = fields, where
        self.others: Counter[str] = Counter()

    def look_at(self, label: str) -> None:
        """Count the label of another row."""
        if len(self.others) <= MOST:
            self.others[label] += 1

    def settle(self) -> None:
        """Refuse to guess where the first row's label stands in no other row and all others do, or are numbers."""
        label = self.fields[-1]
        if self.others.total() < FEWEST or label in self.others or len(self.others) > MOST:
            return
        numbers = all(NUMBER.fullmatch(other) for other in self.others) and not NUMBER.fullmatch(label)
        if numbers or min(self.others.values()) > 1:
            names = zip(default_names(len(self.fields)), self.fields, strict=True)
            named = " ".join(f"--{name}_column '{field}'" for name, field in names)
            what = f"Does the first line name the columns? Its last field, '{label}', stands in no other row."
            hint = f"If it does: --header true {named}. If it is a row like the others: --header false."
            raise UserError(what, where=self.where, hint=hint)
