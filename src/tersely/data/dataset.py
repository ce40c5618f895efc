"""Objects in memory: `datasets.Dataset` and any sequence of dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import UserError
from . import squad
from .rows import Rows

SOURCE = "dataset"
UNLABELLED = -1


def from_dataset(dataset: Iterable[Any], *, labelled: bool = True) -> Rows:
    """Turn a `datasets.Dataset` or a sequence of dicts into rows; class numbers become the classes' names.

    `labelled`: where labels mean nothing, no row is refused for its label.

    >>> from_dataset([{"text": "good", "label": 1}]).where(0)
    'dataset:1'
    """
    if isinstance(dataset, Mapping):
        names = ", ".join(map(str, dataset))
        raise UserError(f"This is a mapping, not a dataset. Its keys: {names}.", where=SOURCE, hint="Pick a split.")
    if hasattr(dataset, "with_format"):  # a tensor format would turn text columns away and labels into arrays
        dataset = dataset.with_format(None)
    named = class_names(getattr(dataset, "features", None) or {}) if labelled else {}
    placed = objects(dataset, named)
    rows = Rows.collect(SOURCE, placed)
    if not rows:
        raise UserError("The dataset holds no rows.", where=SOURCE)
    if labelled and set(rows.columns) >= squad.COLUMNS:
        rows = Rows.collect(SOURCE, squad.located(zip(rows.lines, rows, strict=True), SOURCE))
    return rows


def objects(dataset: Iterable[Any], named: Mapping[str, list[str]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Give (number, record), numbers from 1."""
    for number, record in enumerate(dataset, start=1):
        if not isinstance(record, Mapping):
            raise UserError(f"The row is not a dict but {type(record).__name__}.", where=f"{SOURCE}:{number}")
        yield number, with_names(record, named, f"{SOURCE}:{number}")


def class_names(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Find the columns that hold class numbers (`ClassLabel`, alone or in a list) and their classes' names."""
    found = {}
    for column, feature in features.items():
        for part in (feature, getattr(feature, "feature", None)):
            names = getattr(part, "names", None)
            if names:
                found[column] = list(names)
    return found


def with_names(record: Mapping[str, Any], named: Mapping[str, list[str]], where: str) -> Mapping[str, Any]:
    """Put names in place of class numbers; -1, which says that a row has no label, becomes None.

    >>> with_names({"tags": [0, 1], "label": -1}, {"tags": ["O", "B-PER"], "label": ["no", "yes"]}, "dataset:1")
    {'tags': ['O', 'B-PER'], 'label': None}
    """
    if not named:
        return record

    def name(number: Any, names: list[str]) -> Any:
        if isinstance(number, list):
            return [name(part, names) for part in number]
        if not isinstance(number, int):
            return number
        if not UNLABELLED <= number < len(names):
            raise UserError(f"There is no class {number}: the classes are {', '.join(names)}.", where=where)
        return None if number == UNLABELLED else names[number]

    return {column: name(value, named[column]) if column in named else value for column, value in record.items()}
