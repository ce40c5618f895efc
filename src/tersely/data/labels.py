"""Which labels there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError, nearest
from .json import records
from .rows import Rows

NUMBER = re.compile(r"-?\d+(\.\d+)?")
BESIDE = "labels.json"


def discover_labels(rows: Rows, column: str, listed: Sequence[str] | None = None) -> tuple[str, ...]:
    """Give every label of a column, once: numbers in their order, others by the alphabet; lists are looked into.

    `listed` (from `labels_beside`) is given back as it stands, if every row's label is in it.

    >>> discover_labels(Rows.collect("a", [(1, {"label": 10}), (2, {"label": 9})]), "label")
    ('9', '10')
    """
    found: set[str] = set()
    for index, record in enumerate(rows):
        for value in values(record[column]):
            if value is None:
                raise rows.error(index, f"The row has no label (column '{column}').", "Label it, or take it out.")
            text = label_text(value)
            if text not in found and listed is not None and text not in listed:
                raise rows.error(index, f"The label '{text}' is not in {BESIDE}.", nearest(text, listed))
            found.add(text)
    return tuple(listed) if listed is not None else in_order(found)


def labels_beside(source: str | Path) -> tuple[str, ...] | None:
    """Read `labels.json` in the folder of a data file (CLUE: one {"label": …} per line), in its own order."""
    path = Path(source).parent / BESIDE
    if not path.is_file():
        return None
    found: dict[str, None] = {}
    for line, record in records(path):
        if "label" not in record:
            raise UserError("The field 'label' is missing.", where=f"{path}:{line}")
        found[label_text(record["label"])] = None
    return tuple(found)


def label_text(value: Any) -> str:
    """Write a label as text, as json would.

    >>> label_text(108), label_text(True), label_text("yes")
    ('108', 'true', 'yes')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def values(value: Any) -> Iterable[Any]:
    """Look into lists: tags of words, or several labels."""
    return value if isinstance(value, list | tuple) else (value,)


def in_order(found: Iterable[str]) -> tuple[str, ...]:
    """Sort labels as a reader would.

    >>> in_order({"10", "9"}), in_order({"O", "B-PER"})
    (('9', '10'), ('B-PER', 'O'))
    """
    found = set(found)
    if all(NUMBER.fullmatch(label) for label in found):
        return tuple(sorted(found, key=lambda label: (float(label), label)))
    return tuple(sorted(found))
