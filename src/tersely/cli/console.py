"""What commands show: bars and tables on a terminal, plain lines elsewhere. Results on stdout, the rest on stderr."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..progress import Plain, Terminal


def progress() -> Terminal | Plain:
    """Pick by whether a person is looking at standard error."""
    return Terminal() if sys.stderr.isatty() else Plain()


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table: drawn on a terminal, aligned by blanks elsewhere. Numbers stand right."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    right = [all(_is_number(row[i]) for row in cells if row[i]) for i in range(len(head))]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        drawn = Table(title=escape(title), title_justify="left")
        for name, is_right in zip(head, right, strict=True):
            drawn.add_column(escape(name), justify="right" if is_right else "left")
        for row in cells:
            drawn.add_row(*map(escape, row))
        Console().print(drawn)
        return
    widths = [max(_width(text) for text in column) for column in zip(head, *cells, strict=True)]
    print(title)
    for row in [list(head), *cells]:
        print("  ".join(_set(text, width, r) for text, width, r in zip(row, widths, right, strict=True)).rstrip())


def emit(content: Any) -> None:
    """Print one JSON object."""
    print(json.dumps(content, ensure_ascii=False, indent=2))


def command() -> str:
    """How the user's shell starts this very `tersely`: by its path where PATH leads to none or to another."""
    script = Path(sysconfig.get_path("scripts")) / "tersely"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m tersely"
    found = shutil.which("tersely")
    if found and Path(found).samefile(script):
        return "tersely"
    near = os.path.relpath(script)
    return shlex.quote(str(script) if near.startswith(os.pardir) else near)


def points(fraction: float | None) -> str:
    """Write a fraction in points, as tables show scores.

    >>> points(0.81862)
    '81.86'
    """
    return "" if fraction is None else f"{100 * fraction:.2f}"


def interval(bounds: Sequence[float] | None) -> str:
    """Write an interval in points.

    >>> interval((0.78, 0.855))
    '78.00 to 85.50'
    """
    return "" if bounds is None else f"{points(bounds[0])} to {points(bounds[1])}"


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace("×", "").replace("-", "").replace(" ", "").isdigit()


def _width(text: str) -> int:
    """Columns on a screen: Chinese characters take two."""
    return sum(2 if ord(character) > 0x2E7F else 1 for character in text)


def _set(text: str, width: int, right: bool) -> str:
    gap = " " * (width - _width(text))
    return gap + text if right else text + gap
