"""Rows in parts: a file that does not fit into memory, or lines as they come."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from ..data import iter_records
from ..data.rows import Rows
from ..errors import Failure, UserError, existing
from ..tasks import Columns, Task

ROWS = 1024
"""Rows a part. Batches are cut inside a part, so that answers to the last digit depend on it, but on nothing else."""


@dataclass(frozen=True)
class Part:
    """Some rows that follow each other, read and checked."""

    index: int
    examples: list[Any]
    where: str

    def digest(self) -> str:
        """What the rows are, whatever file they stand in."""
        return hashlib.sha256(repr(self.examples).encode()).hexdigest()


@dataclass(frozen=True)
class RowFile:
    """A file whose rows were all looked at once: `names` are its columns, `rows` how many there are."""

    path: Path
    task: Task
    columns: Columns
    header: bool | None
    names: tuple[str, ...] = ()
    rows: int = 0
    resumable: ClassVar[bool] = True

    @classmethod
    def checked(cls, path: str | Path, task: Task, columns: Columns, header: bool | None = None) -> RowFile:
        """Read a file once, keeping nothing: a bad row is told before the first answer is computed.

        Costs a second reading, which is little beside what answers take.
        """
        found, grown = cls(existing(path, "file"), task, columns, header)._looked_through()
        if grown:  # a column that a later part brought is empty in the earlier ones, and may not be
            found, _ = found._looked_through()
        return found

    def __iter__(self) -> Iterator[Part]:
        seen = 0
        for index, rows in enumerate(self._parts()):
            where = f"{self.path}:{rows.lines[0]}-{rows.lines[-1]}"
            seen += len(rows)
            yield Part(index, self.task.read(rows, self.columns, labelled=False), where)
        if seen != self.rows:
            what = f"The file changed while it was read: it had {self.rows} rows, now {seen}."
            raise Failure(what, where=str(self.path), hint="Run it again.")

    def _looked_through(self) -> tuple[RowFile, bool]:
        """All columns and the number of rows, and whether a part brought columns that the first one has not."""
        names, count, grown = dict.fromkeys(self.names), 0, False
        for rows in self._parts():
            grown = grown or (count > 0 and not names.keys() >= set(rows.columns))
            names.update(dict.fromkeys(rows.columns))
            self.task.read(_with(rows, tuple(names)), self.columns, labelled=False)
            count += len(rows)
        if not count:
            raise UserError("The file holds no rows.", where=str(self.path))
        return replace(self, names=tuple(names), rows=count), grown

    def _parts(self) -> Iterator[Rows]:
        for chunk in _cut(iter_records(self.path, header=self.header)):
            yield _with(Rows.collect(str(self.path), chunk), self.names)


@dataclass(frozen=True)
class LineRows:
    """Lines of standard input: they come once, so that an interrupted run cannot go on."""

    lines: Iterable[tuple[int, str]]
    example: Callable[[int, str], Any]
    source: str = "standard input"
    rows: ClassVar[int] = 0
    resumable: ClassVar[bool] = False

    def __iter__(self) -> Iterator[Part]:
        for index, chunk in enumerate(_cut(self.lines)):
            examples = [self.example(number, line) for number, line in chunk]
            yield Part(index, examples, f"{self.source}:{chunk[0][0]}-{chunk[-1][0]}")


def _cut(items: Iterable[Any]) -> Iterator[list[Any]]:
    items = iter(items)
    while chunk := list(islice(items, ROWS)):
        yield chunk


def _with(rows: Rows, names: tuple[str, ...]) -> Rows:
    """The same with columns that only other parts of the file have."""
    if set(names) <= set(rows.columns):
        return rows
    empty: Mapping[str, Any] = dict.fromkeys(names)
    return replace(rows, columns=names, records=tuple({**empty, **record} for record in rows.records))
