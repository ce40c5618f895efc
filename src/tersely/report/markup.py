"""HTML, SVG and Markdown as text: what is not markup is escaped; a row's text cannot become part of the page."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

# What XML does not allow, lone surrogates among it: it would break the page for strict readers.
_NOT_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
VOID = {"meta", "link", "br"}


class Markup(str):
    """Text that is markup, made by `tag` from parts that were escaped."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Make plain text safe; markup stays as it is.

    >>> escape('<b> & "c"'), escape(Markup("<br>"))
    ('&lt;b&gt; &amp; &quot;c&quot;', '<br>')
    """
    return text if isinstance(text, Markup) else Markup(html.escape(_NOT_TEXT.sub("\ufffd", text)))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element. `class_` is class, underscores are hyphens, None leaves an attribute out.

    >>> tag("a", "<3", class_="x", aria_label='"', title=None)
    '<a class="x" aria-label="&quot;">&lt;3</a>'
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    inner = "".join(f' {key}="{escape(_text(value))}"' for key, value in named.items())
    if name in VOID:
        return Markup(f"<{name}{inner}>")
    return Markup(f"<{name}{inner}>{''.join(map(escape, children))}</{name}>")


def join(*parts: str, by: str = "") -> Markup:
    """Several parts as one."""
    return Markup(escape(by).join(escape(part) for part in parts if part))


def _text(value: str | float) -> str:
    """Coordinates to a tenth: a page is read, not measured."""
    return value if isinstance(value, str) else f"{round(value, 1):g}"


# Control characters, lone surrogates, and marks that turn the direction of all that follows.
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Column:
    """A heading; `right`: numbers, which stand right and sort as numbers; `note`: what it means; `words`: sentences."""

    name: str
    right: bool = False
    note: str | None = None
    words: bool = False

    @property
    def side(self) -> str | None:
        """Its CSS class."""
        return "number" if self.right else "words" if self.words else None


Cell = str | tuple[str, str]
"""What a cell says, and what stands beside it in smaller letters."""


@dataclass(frozen=True)
class TableLine:
    """Cells of one row; `mark`: its CSS class; `key`: the name under which a script finds it."""

    cells: Sequence[Cell]
    mark: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class ReportTable:
    """Columns and lines; columns in which no line has anything are left out."""

    columns: Sequence[Column]
    lines: Sequence[TableLine]

    def shown(self) -> ReportTable:
        """The same without its empty columns."""
        kept = [i for i in range(len(self.columns)) if i == 0 or any(plain(line.cells[i]) for line in self.lines)]
        lines = [TableLine([line.cells[i] for i in kept], line.mark, line.key) for line in self.lines]
        return ReportTable([self.columns[i] for i in kept], lines)


def html_table(
    table: ReportTable, caption: str, *, sortable: bool = False, shades: Sequence[Sequence[float]] = ()
) -> Markup:
    """A table that scrolls by itself where the screen is narrow. `shades` [lines, columns - 1]: how dark a cell is."""
    table = table if shades else table.shown()
    heads = []
    for column in table.columns:
        name = tag("button", column.name, type="button") if sortable else column.name
        heads.append(tag("th", name, scope="col", class_=column.side, title=column.note))
    body = [_html_line(line, table.columns, shades[place] if shades else ()) for place, line in enumerate(table.lines)]
    inner = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *body),
        class_="sortable" if sortable else None,
    )
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def markdown_table(table: ReportTable) -> str:
    """A table as GitHub reads it."""
    table = table.shown()
    rule = [" ---: " if column.right else " --- " for column in table.columns]
    lines = [[escape_markdown(column.name) for column in table.columns]]
    lines += [[escape_markdown(plain(cell)) for cell in line.cells] for line in table.lines]
    written = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([written[0], f"|{'|'.join(rule)}|", *written[1:]])


def escape_markdown(text: str) -> str:
    """Make text safe in a line of Markdown: it cannot end a cell, open a tag or a link.

    >>> escape_markdown("a|b <i> [x](y)")
    'a\\\\|b &lt;i&gt; \\\\[x\\\\](y)'
    """
    flat = " ".join(_HIDDEN.sub("\ufffd", text).split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|~])", r"\\\1", flat)


def _html_line(line: TableLine, columns: Sequence[Column], shades: Sequence[float]) -> Markup:
    cells = []
    for place, (cell, column) in enumerate(zip(line.cells, columns, strict=True)):
        name, scope = ("th", "row") if place == 0 else ("td", None)
        shade = f"--shade: {100 * shades[place - 1]:.0f}%" if place and shades else None
        cells.append(tag(name, *_html_cell(cell), scope=scope, class_=column.side, style=shade))
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
