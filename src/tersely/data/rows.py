"""`Rows`: what the user's file says, with file and line of each row; and lines of text files with their numbers."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UserError, existing, nearest

Placed = tuple[int, str]

PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Not str.split(): the ideographic space U+3000 is a word in Chinese corpora.
BLANKS = re.compile(r"[ \t]+")


@dataclass(frozen=True)
class Rows:
    """Records as they stand in a source; `lines[i]` is the 1-based line (or row number) of `records[i]`.

    >>> rows = Rows("reviews.tsv", ("text", "label"), ({"text": "fine", "label": "1"},), (2,))
    >>> rows.where(0)
    'reviews.tsv:2'
    """

    source: str
    columns: tuple[str, ...]
    records: tuple[Mapping[str, Any], ...]
    lines: tuple[int, ...]

    @classmethod
    def collect(cls, source: str, placed: Iterable[tuple[int, Mapping[str, Any]]]) -> Rows:
        """Gather (line, record) pairs; a column that only some records have is None in the others.

        >>> Rows.collect("a.jsonl", [(1, {"text": "fine"}), (2, {"text": "bad", "label": "0"})]).records[0]
        {'text': 'fine', 'label': None}
        """
        lines: list[int] = []
        records: list[Mapping[str, Any]] = []
        columns: dict[str, None] = {}
        ragged = False
        for line, record in placed:
            lines.append(line)
            records.append(record)
            if record.keys() != columns.keys():
                ragged = ragged or len(records) > 1
                columns.update(dict.fromkeys(record))
        if ragged:
            records = [
                record if len(record) == len(columns) else {**dict.fromkeys(columns), **record} for record in records
            ]
        return cls(source, tuple(columns), tuple(records), tuple(lines))

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.records)

    def where(self, index: int) -> str:
        """Name the place of a row, for messages."""
        return f"{self.source}:{self.lines[index]}"

    def error(self, index: int, what: str, hint: str | None = None) -> UserError:
        """Blame one row."""
        return UserError(what, where=self.where(index), hint=hint)

    def text(self, index: int, column: str) -> str:
        """The text of a row in a column; None, numbers and the like are refused with their place."""
        value = self.records[index].get(column)
        if not isinstance(value, str):
            what = f"Column '{column}' must hold text. Got {'nothing' if value is None else type(value).__name__}."
            raise self.error(index, what, hint="Fill in or remove the row.")
        return value

    def column(self, option: str, name: str | None, usual: Sequence[str]) -> str | None:
        """Find a column: the one that the option names (it must exist), else the first usual name there is."""
        if name is None:
            return next((column for column in usual if column in self.columns), None)
        if name in self.columns:
            return name
        hint = nearest(name, self.columns)
        if self.records and name in self.records[0].values():
            hint = "It stands in the first row: say --header true if that row names the columns."
        raise self.lacks(f"There is no column '{name}' (option '{option}').", hint)

    def lacks(self, what: str, hint: str) -> UserError:
        """Blame the columns: one that is needed is not among them."""
        return UserError(f"{what} Columns here: {', '.join(self.columns)}.", where=self.source, hint=hint)

    def select(self, indices: Iterable[int]) -> Rows:
        """Keep some rows, in the order given."""
        indices = list(indices)
        lines = tuple(self.lines[i] for i in indices)
        return replace(self, records=tuple(self.records[i] for i in indices), lines=lines)

    def map(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]], columns: Sequence[str]) -> Rows:
        """Rewrite every record; places stay."""
        return replace(self, columns=tuple(columns), records=tuple(change(record) for record in self.records))


def lines(path: str | Path) -> Iterator[Placed]:
    r"""Give (number, line with its line feed), split at line feeds only; the byte-order mark is taken off.

    Text may hold U+2028, U+0085 or a vertical tab, at which `str.splitlines` would cut it.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = file.write_bytes("one\u2028still one\ntwo".encode())
    >>> list(lines(file))
    [(1, 'one\u2028still one\n'), (2, 'two')]
    """
    offset, blank = 0, True
    with opened(path) as file:
        for number, raw in enumerate(file, start=1):
            if number == 1 and raw.startswith(codecs.BOM_UTF8):
                raw = raw[len(codecs.BOM_UTF8) :]
                offset = len(codecs.BOM_UTF8)
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf_8(error, path, number, offset) from error
            offset += len(raw)
            if blank and line.strip():
                blank = False
            yield number, line
    if blank:
        raise UserError("The file is empty.", where=str(path))


def bare_lines(path: str | Path) -> Iterator[Placed]:
    """Give (number, line) without the line's end, be it LF or CR LF."""
    for number, line in lines(path):
        yield number, line.removesuffix("\n").removesuffix("\r")


def fields_of(line: str, tabs: bool) -> list[str]:
    """Cut a line at tabs, or at runs of blanks."""
    return line.split("\t") if tabs else BLANKS.split(line.strip(" \t"))


def text_records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    r"""Read plain text: give (line, {"text": line}), blank lines passed over.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = file.write_text("good\n\nbad\n")
    >>> list(text_records(file))
    [(1, {'text': 'good'}), (3, {'text': 'bad'})]
    """
    for number, line in bare_lines(path):
        if line.strip():
            yield number, {"text": line}


def read_text(path: str | Path) -> str:
    """Give the text of a whole file, byte-order mark taken off."""
    return "".join(line for _, line in lines(path))


def beginning(path: str | Path, size: int = 1 << 16) -> str:
    """Give the first whole lines of a file, to guess its format from; bytes that are not UTF-8 are marked."""
    with opened(path) as file:
        head = file.read(size)
        more = bool(file.read(1))
    if more and b"\n" in head:
        head = head[: head.rindex(b"\n")]
    return head.decode("utf-8-sig", errors="replace")


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading; a file that is missing, a folder or packed is refused."""
    path = existing(path, "file")
    if path.is_dir():
        raise UserError("This is a folder, not a file.", where=str(path), hint="Give a file, or the split to read.")
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"The file cannot be read: {error.strerror}.", where=str(path)) from error
    with file:
        head = file.read(6)
        for mark, name in PACKED.items():
            if head.startswith(mark):
                raise UserError(f"The file is packed ({name}).", where=str(path), hint="Unpack it first.")
        file.seek(0)
        yield file


def not_utf_8(error: UnicodeDecodeError, path: str | Path, number: int, offset: int) -> UserError:
    """Say which byte is wrong; `offset` is where the line starts in the file."""
    encoding = "UTF-16" if number == 1 and error.object.startswith(UTF_16) else "ENCODING"
    what = f"The file is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {offset + error.start}."
    return UserError(what, where=f"{path}:{number}", hint=f"Convert it: iconv -f {encoding} -t UTF-8.")
