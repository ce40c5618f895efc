"""What was asked for, drawn into the plot: speed-ups as upright lines, the limit of the drop as a level one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import numbers as n
from .labels import GAP, HIGH, Box, Circle, around, width
from .markup import Markup, tag
from .run import FinishedRun


@dataclass(frozen=True)
class Wish:
    """What was asked for, in pixels: speed-ups to the right, the limit of the drop upwards; either may be missing."""

    across: Sequence[float]
    up: float | None
    ground: Box

    def drawn(self, wishes: Sequence[float]) -> list[Markup]:
        """The field in which every wish is met, and its edges; a speed-up stands over its line where there is room."""
        ground, bottom = self.ground, self.ground.bottom if self.up is None else self.up
        if not self.across and self.up is None:
            return []
        left = max(self.across, default=ground.left)
        size = {"width": ground.right - left, "height": bottom - ground.top}
        found = [tag("rect", x=left, y=ground.top, class_="field", **size)]
        end = -math.inf
        for x, value in sorted(zip(self.across, wishes, strict=True)):
            found.append(tag("line", x1=x, x2=x, y1=ground.top, y2=ground.bottom))
            said = f"wish: {value:g} ×"
            middle = min(x, ground.right - width(said) / 2)
            if middle - width(said) / 2 > end + GAP:
                found.append(tag("text", said, x=middle, y=ground.top - 6, text_anchor="middle"))
                end = middle + width(said) / 2
        if self.up is not None:
            found.append(tag("line", x1=ground.left, x2=ground.right, y1=self.up, y2=self.up))
        return found


def place_limit(said: str | None, wish: Wish, circles: Sequence[Circle]) -> tuple[list[Markup], list[Box]]:
    """The words under or over the line of the limit, as far right as no model is, and the room that they take."""
    if said is None or wish.up is None:
        return [], []
    ground, wide = wish.ground, width(said)
    right = ground.right - GAP
    while right - wide > ground.left + GAP:
        for top in (wish.up + 2, wish.up - 2 - HIGH):
            box = Box(right - wide, top, right, top + HIGH)
            if ground.holds(box) and not any(box.meets(around(circle)) for circle in circles):
                return [tag("text", said, x=right, y=box.bottom - 4, text_anchor="end")], [box]
        right -= HIGH
    return [], []


def limit_height(run: FinishedRun, heights: Sequence[float], narrowest: float) -> float | None:
    """Where the score has fallen by all that it may; None without a limit.

    None too where it is so far below all models that these would lie on each other.
    """
    if run.max_drop is None or not run.scored or run.fp32.score is None:
        return None
    found = run.sign * run.fp32.score - run.max_drop
    low, high = min(heights), max(heights)
    return found if found >= low - max(high - low, narrowest) else None


def wished(run: FinishedRun) -> str:
    """What the lines mean, in words; empty where nothing was asked for."""
    parts = []
    if run.wishes:
        parts.append(f"the upright {'line is' if len(run.wishes) == 1 else 'lines are'} --target_speedup")
    if run.max_drop is not None and run.scored:
        parts.append(f"the level one is the lowest score that {run.limit_by} allows, {n.drop_limit(run)} below FP32")
    if not parts:
        return ""
    words = " and ".join(parts)
    return f"Green is what was asked for: {words}; inside the field all of it is met."
