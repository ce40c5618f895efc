"""`Rows`: what the user's file says, with file and line of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import UserError, nearest


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

    def column(self, option: str, asked: str | None, usual: Sequence[str]) -> str | None:
        """Find a column: the one that the option names (it must exist), else the first usual name there is."""
        if asked is not None:
            if asked not in self.columns:
                hint = nearest(asked, self.columns)
                if self.records and asked in self.records[0].values():
                    hint = "It stands in the first row: say --header true if that row names the columns."
                raise self.lacks(f"There is no column '{asked}' (option '{option}').", hint)
            return asked
        return next((name for name in usual if name in self.columns), None)

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
