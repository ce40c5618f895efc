"""Words in a picture: beside what they name, and not on each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .markup import Markup, tag

Circle = tuple[float, float, float, str]
"""x, y, radius, name."""
WIDE, HIGH, GAP = 7.2, 15.0, 6.0
"""Pixels of a letter, of a line, and between a circle and its name."""


@dataclass(frozen=True)
class Box:
    """A rectangle; `top` is less than `bottom`."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two share a point.

        >>> Box(0, 0, 2, 2).meets(Box(1, 1, 3, 3)), Box(0, 0, 1, 1).meets(Box(2, 2, 3, 3))
        (True, False)
        """
        apart = self.right < other.left or other.right < self.left or self.bottom < other.top or other.bottom < self.top
        return not apart

    def holds(self, other: Box) -> bool:
        """Whether the other lies inside."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


def place_labels(circles: Sequence[Circle], ground: Box, reserved: Sequence[Box] = ()) -> list[Markup]:
    """Names beside their circles, as far as they fit without lying on each other, the first circles' first.

    `reserved`: where other words stand.
    """
    taken = [around(circle) for circle in circles]
    placed = []
    for place, (x, y, r, name) in enumerate(circles):
        others = [*reserved, *taken[:place], *taken[place + 1 :]]
        for box, anchor in _tries(x, y, r, width(name)):
            if ground.holds(box) and not any(box.meets(other) for other in others):
                at = {"start": box.left, "end": box.right, "middle": (box.left + box.right) / 2}[anchor]
                placed.append(tag("text", name, x=at, y=box.bottom - 4, text_anchor=anchor))
                taken.append(box)
                break
    return placed


def around(circle: Circle) -> Box:
    """The room that it takes."""
    x, y, r, _ = circle
    return Box(x - r, y - r, x + r, y + r)


def _tries(x: float, y: float, r: float, wide: float) -> Iterator[tuple[Box, str]]:
    """Right, left, above and below of a circle."""
    right, left = x + r + GAP, x - r - GAP
    yield Box(right, y - HIGH / 2, right + wide, y + HIGH / 2), "start"
    yield Box(left - wide, y - HIGH / 2, left, y + HIGH / 2), "end"
    for top in (y - r - GAP - HIGH, y + r + GAP):
        yield Box(x - wide / 2, top, x + wide / 2, top + HIGH), "middle"


def width(text: str) -> float:
    """Pixels that a text takes, about: Chinese characters are twice as wide."""
    return sum(2 * WIDE if ord(letter) > 0x2E7F else WIDE for letter in text)
