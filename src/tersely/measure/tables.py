"""Numbers as tables show them, and tables as text: columns aligned by blanks, numbers right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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


def cells(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Cells as text; None is empty."""
    return [["" if cell is None else str(cell) for cell in row] for row in rows]


def stand_right(rows: Sequence[Sequence[str]], columns: int) -> list[bool]:
    """Which columns hold nothing but numbers."""
    return [all(_is_number(row[i]) for row in rows if row[i]) for i in range(columns)]


def aligned(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table as lines of text.

    >>> print(aligned(["model", "×"], [["bert", "9.50"], ["mpnet", None]]))
    model     ×
    bert   9.50
    mpnet
    """
    texts = cells(rows)
    right = stand_right(texts, len(head))
    widths = [max(_width(text) for text in column) for column in zip(head, *texts, strict=True)]
    lines = []
    for row in [list(head), *texts]:
        gaps = [" " * (width - _width(text)) for text, width in zip(row, widths, strict=True)]
        placed = [gap + text if is_right else text + gap for text, gap, is_right in zip(row, gaps, right, strict=True)]
        lines.append("  ".join(placed).rstrip())
    return "\n".join(lines)


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace("×", "").replace("-", "").replace(" ", "").isdigit()


def _width(text: str) -> int:
    """Columns on a screen: Chinese characters take two."""
    return sum(2 if ord(character) > 0x2E7F else 1 for character in text)
