"""Rows whose answer the chosen model changed, with their texts, and how labels are confused."""

from __future__ import annotations

from pathlib import PurePath

from . import numbers as n
from .run import Row, Run
from .table import Column, Line, Table

VERDICTS = {"worse": "worse", "better": "better", "neither": "no better, no worse"}


def summary(run: Run) -> str:
    """How many answers changed, for the worse and for the better."""
    found = run.changes
    if found is None:
        return ""
    if not found.changed:
        return f"None of {n.count(found.rows, 'answer', 'answers')} changed."
    said = f"{found.changed:,} of {n.count(found.rows, 'row', 'rows')} got another answer than from FP32"
    if found.worse is None or found.better is None:
        return f"{said}; without labels none can be called better or worse."
    neither = found.changed - found.worse - found.better
    return f"{said}: {found.worse:,} a worse one, {found.better:,} a better one, {neither:,} neither."


def changed(run: Run) -> Table | None:
    """The worst changed rows; None where none changed or an older run did not write them."""
    if run.changes is None or not run.changes.shown:
        return None
    columns = [
        Column("row"),
        Column("text"),
        Column("FP32 said"),
        Column(f"{run.best} says"),
        Column("right is"),
        Column("which is"),
    ]
    return Table(columns, [_line(row) for row in run.changes.shown])


def _line(row: Row) -> Line:
    verdict = VERDICTS.get(row.verdict or "", "")
    cells = [PurePath(row.where).name, texts(row), row.fp32, row.best, row.gold or "", verdict]
    return Line(cells, row.verdict)


def texts(row: Row) -> str:
    """The texts of a row, one after the other.

    >>> texts(Row("a:1", {"question": "Who?", "context": "Ada."}))
    'Who? ⏎ Ada.'
    """
    return " ⏎ ".join(row.texts.values())


def shares(run: Run) -> list[list[float]]:
    """Of each label's rows the share that got which answer from the chosen model."""
    found = run.confusion.best if run.confusion is not None else ()
    return [[count / max(1, sum(row)) for count in row] for row in found]


def confusion(run: Run) -> Table | None:
    """Counts of the chosen model, with their difference to FP32's; None where that has no meaning."""
    found = run.confusion
    if found is None:
        return None
    columns = [Column("right is ↓  answered →"), *[Column(label, True) for label in found.labels]]
    lines = []
    for label, before, after in zip(found.labels, found.fp32, found.best, strict=True):
        cells = [_count(was, now) for was, now in zip(before, after, strict=True)]
        lines.append(Line([label, *cells]))
    return Table(columns, lines)


def _count(was: int, now: int) -> str:
    """A count with its change.

    >>> _count(5, 5), _count(5, 7), _count(0, 0)
    ('5', '7 (+2)', '0')
    """
    return f"{now}" if was == now else f"{now} ({now - was:+d})".replace("-", "−")
