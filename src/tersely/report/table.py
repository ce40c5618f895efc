"""`Table`: cells as text, written as HTML or as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .markup import Markup, join, tag

# Control characters, lone surrogates, and marks that turn the direction of all that follows.
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Column:
    """A heading; `right`: numbers, which stand right and sort as numbers; `note`: what it means."""

    name: str
    right: bool = False
    note: str | None = None


Cell = str | tuple[str, str]
"""What a cell says, and what stands beside it in smaller letters."""


@dataclass(frozen=True)
class Line:
    """Cells of one row; `mark`: its CSS class; `key`: the name under which a script finds it."""

    cells: Sequence[Cell]
    mark: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Table:
    """Columns and lines; columns in which no line has anything are left out."""

    columns: Sequence[Column]
    lines: Sequence[Line]

    def shown(self) -> Table:
        """The same without its empty columns."""
        kept = [i for i in range(len(self.columns)) if i == 0 or any(plain(line.cells[i]) for line in self.lines)]
        lines = [Line([line.cells[i] for i in kept], line.mark, line.key) for line in self.lines]
        return Table([self.columns[i] for i in kept], lines)


def html_table(table: Table, caption: str, *, sortable: bool = False, shades: Sequence[Sequence[float]] = ()) -> Markup:
    """A table that scrolls by itself where the screen is narrow. `shades` [lines, columns - 1]: how dark a cell is."""
    table = table if shades else table.shown()
    heads = [
        tag("th", _button(column) if sortable else column.name, scope="col", class_=_side(column), title=column.note)
        for column in table.columns
    ]
    body = [_html_line(line, table.columns, shades[place] if shades else ()) for place, line in enumerate(table.lines)]
    inner = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *body),
        class_="sortable" if sortable else None,
    )
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def markdown_table(table: Table) -> str:
    """A table as GitHub reads it."""
    table = table.shown()
    rule = [" ---: " if column.right else " --- " for column in table.columns]
    lines = [[escape_markdown(column.name) for column in table.columns]]
    lines += [[escape_markdown(plain(cell)) for cell in line.cells] for line in table.lines]
    written = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([written[0], f"|{'|'.join(rule)}|", *written[1:]]) + "\n"


def escape_markdown(text: str) -> str:
    """Make text safe in a line of Markdown: it cannot end a cell, open a tag or a link.

    >>> escape_markdown("a|b <i> [x](y)")
    'a\\\\|b &lt;i&gt; \\\\[x\\\\](y)'
    """
    flat = " ".join(_HIDDEN.sub("\ufffd", text).split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|~])", r"\\\1", flat)


def _html_line(line: Line, columns: Sequence[Column], shades: Sequence[float]) -> Markup:
    cells = []
    for place, (cell, column) in enumerate(zip(line.cells, columns, strict=True)):
        name, scope = ("th", "row") if place == 0 else ("td", None)
        shade = f"--shade: {100 * shades[place - 1]:.0f}%" if place and shades else None
        cells.append(tag(name, *_html_cell(cell), scope=scope, class_=_side(column), style=shade))
    return tag("tr", join(*cells), class_=line.mark, data_name=line.key)


def plain(cell: Cell) -> str:
    """A cell in one line.

    >>> plain(("81.9", "78.2 to 85.5")), plain(("81.9", "")), plain("x")
    ('81.9 (78.2 to 85.5)', '81.9', 'x')
    """
    if isinstance(cell, str):
        return cell
    return f"{cell[0]} ({cell[1]})" if cell[0] and cell[1] else cell[0] or cell[1]


def _html_cell(cell: Cell) -> list[Markup]:
    if isinstance(cell, str):
        return [tag("bdi", cell)]
    return [tag("bdi", cell[0]), *([tag("small", cell[1])] if cell[1] else [])]


def _button(column: Column) -> Markup:
    return tag("button", column.name, type="button")


def _side(column: Column) -> str | None:
    return "number" if column.right else None
