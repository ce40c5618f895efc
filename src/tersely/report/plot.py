"""The Pareto plot as SVG: score against speed, each model a circle whose area is its size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import numbers as n
from .axis import Axis, axis
from .labels import Box, place_labels
from .markup import Markup, join, tag
from .run import Model, Run

LEFT, RIGHT, TOP, BOTTOM = 58.0, 18.0, 18.0, 50.0
LARGEST = 26.0
"""Radius of the largest model."""
SMALLEST = 5.0


@dataclass(frozen=True)
class Point:
    """A model at its place. `low`, `high`: where the interval of its drop ends, if there is one."""

    model: Model
    x: float
    y: float
    radius: float
    low: float | None
    high: float | None
    kind: str


def plot(run: Run, width: float, height: float) -> Markup:
    """Draw those models that were timed; nothing where there are none."""
    timed = [one for one in run.candidates if one.speed is not None and not math.isnan(_value(run, one))]
    if not timed:
        return Markup("")
    models = [run.fp32, *timed]
    heights = [value for one in models for value in _heights(run, one)]
    narrowest = 0.02 if run.fraction else 0.02 * max(abs(value) for value in heights) or 1.0
    across = axis([_speed(run, one) for one in models], LEFT, width - RIGHT, narrowest=0.5)
    up = axis(heights, height - BOTTOM, TOP, narrowest=narrowest)
    largest = max(one.size for one in models) or 1
    points = [_point(run, one, across, up, largest) for one in models]
    points.sort(key=lambda point: -point.radius)  # small ones are drawn over large ones
    ground = Box(LEFT, TOP, width - RIGHT, height - BOTTOM)
    marked = {id(point): (point.kind == "chosen") + 2 * (point.kind == "fp32") for point in points}
    ranked = sorted(points, key=lambda point: (-marked[id(point)], "beaten" in point.kind, point.model.name))
    circles = [(point.x, point.y, point.radius + 4 * (point.kind == "chosen"), point.model.name) for point in ranked]
    title = f"{_what(run)} against speed of {len(timed)} candidates and FP32"
    return tag(
        "svg",
        tag("title", title),
        tag("g", *_grid(run, across, up, ground), class_="grid", aria_hidden="true"),
        _front(points, ground),
        *[_drawn(run, point) for point in points],
        tag("g", *[tag("text", text, x=x, y=y, text_anchor=anchor) for text, x, y, anchor in
                   place_labels(circles, ground)], class_="names", aria_hidden="true"),
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="group",
        aria_label=title,
    )  # fmt: skip


def _what(run: Run) -> str:
    return run.metric if run.scored else "share of FP32's answers"


def _value(run: Run, one: Model) -> float:
    """What the plot shows upwards: the score or, where nothing was scored, the share of equal answers."""
    if run.scored:
        return one.score if one.score is not None else math.nan
    return 1.0 if one is run.fp32 else one.same_answer or 0.0


def _speed(run: Run, one: Model) -> float:
    return 1.0 if one is run.fp32 else one.speed or 1.0


def _heights(run: Run, one: Model) -> list[float]:
    """Value and interval as heights: up is better, also where less is."""
    sign = 1 if run.greater_is_better or not run.scored else -1
    found = [sign * _value(run, one)]
    if run.scored and one.drop_interval and run.fp32.score is not None:
        found += [sign * run.fp32.score - drop for drop in reversed(one.drop_interval)]
    return found


def _point(run: Run, one: Model, across: Axis, up: Axis, largest: int) -> Point:
    heights = _heights(run, one)
    low, high = (up(value) for value in heights[1:]) if len(heights) > 1 else (None, None)
    kind = "fp32" if one is run.fp32 else "chosen" if one.name == run.best else "front" if one.pareto else "beaten"
    radius = max(SMALLEST, LARGEST * math.sqrt(one.size / largest))
    return Point(one, across(_speed(run, one)), up(heights[0]), radius, low, high, kind)


def _grid(run: Run, across: Axis, up: Axis, ground: Box) -> list[Markup]:
    sign = 1 if run.greater_is_better or not run.scored else -1
    drawn = []
    for value in across.ticks(6 if ground.right > 500 else 4):
        x = across(value)
        drawn.append(tag("line", x1=x, x2=x, y1=ground.top, y2=ground.bottom))
        drawn.append(tag("text", f"{value:g} ×", x=x, y=ground.bottom + 18, text_anchor="middle"))
    for value in up.ticks():
        shown = (
            f"{round(100 * sign * value, 6):g}" if run.fraction or not run.scored else f"{sign * value:g}"
        ).replace("-", "−")
        drawn.append(tag("line", x1=ground.left, x2=ground.right, y1=up(value), y2=up(value)))
        drawn.append(tag("text", shown, x=ground.left - 8, y=up(value) + 4, text_anchor="end"))
    middle = (ground.left + ground.right) / 2
    drawn.append(tag("text", "times as fast as FP32 →", x=middle, y=ground.bottom + 40, text_anchor="middle"))
    side, centre = 13.0, (ground.top + ground.bottom) / 2
    better = "" if run.greater_is_better or not run.scored else " (less is better)"
    drawn.append(
        tag(
            "text",
            f"{_what(run)}{better} →",
            text_anchor="middle",
            transform=f"translate({side} {centre:g}) rotate(-90)",
        )
    )
    fp32 = up(_heights(run, run.fp32)[0])
    drawn.append(tag("line", x1=ground.left, x2=ground.right, y1=fp32, y2=fp32, class_="level"))
    return drawn


def _front(points: Sequence[Point], ground: Box) -> Markup:
    """The best score to be had at each speed, as stairs; upwards is a smaller y."""
    corners: list[str] = []
    best = math.inf
    for point in sorted(points, key=lambda point: (-point.x, point.y)):
        if point.y < best - 1e-6:
            corners += [f"{point.x:.1f},{best:.1f}"] if corners else []
            corners.append(f"{point.x:.1f},{point.y:.1f}")
            best = point.y
    corners.append(f"{ground.left:.1f},{best:.1f}")
    return tag("polyline", points=" ".join(corners), class_="line", aria_hidden="true")


def _drawn(run: Run, point: Point) -> Markup:
    one = point.model
    said = described(run, one)
    whisker = Markup("")
    if point.low is not None and point.high is not None:
        whisker = tag("line", x1=point.x, x2=point.x, y1=point.low, y2=point.high, class_="whisker")
    ring = Markup("")
    if point.kind == "chosen":
        ring = tag("circle", cx=point.x, cy=point.y, r=point.radius + 4, class_="ring")
    inside = join(
        tag("title", said), whisker, ring, tag("circle", cx=point.x, cy=point.y, r=point.radius, class_="dot")
    )
    return tag("g", inside, class_=f"point {point.kind}", tabindex="0", role="img", aria_label=said, data_name=one.name)


def described(run: Run, one: Model) -> str:
    """A model in one line: what a pointer that rests on it shows."""
    parts = []
    if one.score is not None:
        within = f" (95 % {n.interval(run, one.interval)})" if one.interval else ""
        parts.append(f"{run.metric} {n.score(run, one.score)}{within}")
    if one.drop is not None:
        parts.append(f"drop {n.score(run, one.drop)}")
    if one.same_answer is not None:
        parts.append(f"{n.percent(one.same_answer)} % same answers")
    parts += [f"{n.times(speed.ratio)} × at {n.batch(size)}" for size, speed in one.speed_by_batch.items()]
    if one.size:
        parts.append(f"{n.megabytes(one.size)} MB")
    if one.why_not:
        parts.append(f"not chosen: {one.why_not}")
    chosen = " (chosen)" if one is not run.fp32 and one.name == run.best else ""
    return f"{one.name}{chosen}: {', '.join(parts)}"
