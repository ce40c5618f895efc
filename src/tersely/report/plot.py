"""The Pareto plot as SVG: score against speed, the area of each model its size, and the wish as lines.

A circle is a model with the weights as they came or as least squares left them, a square of equal area one that was
trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import numbers as n
from .labels import Box, place_labels
from .markup import Markup, tag
from .run import FinishedRun, ModelResult
from .wish import Wish, limit_height, place_limit

LEFT, RIGHT, TOP, BOTTOM = 58.0, 18.0, 22.0, 50.0
LARGEST = 26.0
"""Radius of the largest model."""
SMALLEST = 5.0
STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Point:
    """A model at its place. `low`, `high`: where the interval of its drop ends, if there is one."""

    model: ModelResult
    x: float
    y: float
    radius: float
    low: float | None
    high: float | None
    kind: str


def plot(run: FinishedRun, width: float, height: float) -> Markup:
    """Draw those models that were timed; nothing where there are none."""
    timed = [model for model in run.candidates if model.speed is not None and not math.isnan(_value(run, model))]
    if not timed:
        return Markup("")
    models = [run.fp32, *timed]
    heights = [value for model in models for value in _heights(run, model)]
    narrowest = 0.02 if run.fraction else 0.02 * max(abs(value) for value in heights) or 1.0
    limit = limit_height(run, heights, narrowest)
    heights += [] if limit is None else [limit]
    across = axis([*(_speed(run, model) for model in models), *run.wishes], LEFT, width - RIGHT, narrowest=0.5)
    up = axis(heights, height - BOTTOM, TOP, narrowest=narrowest)
    largest = max(model.size for model in models) or 1
    points = [_point(run, model, across, up, largest) for model in models]
    points.sort(key=lambda point: -point.radius)  # small ones are drawn over large ones
    ground = Box(LEFT, TOP, width - RIGHT, height - BOTTOM)
    order = {"fp32": 0, "chosen": 1, "front": 2, "beaten": 3}
    ranked = sorted(points, key=lambda point: (order[point.kind], point.model.name))
    circles = [(point.x, point.y, point.radius + 4 * (point.kind == "chosen"), point.model.name) for point in ranked]
    wish = Wish([across(value) for value in run.wishes], None if limit is None else up(limit), ground)
    said = None if limit is None else f"{n.drop_limit(run)} below FP32"
    limit_label, taken = place_limit(said, wish, circles)
    title = f"{_what(run)} against speed of {len(timed)} candidates and FP32"
    return tag(
        "svg",
        tag("title", title),
        tag("g", *_grid(run, across, up, ground), class_="grid", aria_hidden="true"),
        tag("g", *wish.drawn(run.wishes), *limit_label, class_="wish", aria_hidden="true"),
        _front(points, ground),
        *[_drawn(run, point) for point in points],
        tag("g", *place_labels(circles, ground, taken), class_="names", aria_hidden="true"),
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="group",
        aria_label=title,
    )


def _what(run: FinishedRun) -> str:
    return run.metric if run.scored else "share of FP32's answers"


def _value(run: FinishedRun, model: ModelResult) -> float:
    """What the plot shows upwards: the score or, where nothing was scored, the share of equal answers."""
    if run.scored:
        return model.score if model.score is not None else math.nan
    return 1.0 if model is run.fp32 else model.same_answer or 0.0


def _speed(run: FinishedRun, model: ModelResult) -> float:
    return 1.0 if model is run.fp32 else model.speed or 1.0


def _heights(run: FinishedRun, model: ModelResult) -> list[float]:
    """Value and interval as heights: up is better, also where less is."""
    found = [run.sign * _value(run, model)]
    if run.scored and model.drop_interval and run.fp32.score is not None:
        found += [run.sign * run.fp32.score - drop for drop in reversed(model.drop_interval)]
    return found


def _point(run: FinishedRun, model: ModelResult, across: Axis, up: Axis, largest: int) -> Point:
    heights = _heights(run, model)
    low, high = (up(value) for value in heights[1:]) if len(heights) > 1 else (None, None)
    kind = (
        "fp32" if model is run.fp32 else "chosen" if model.name == run.best else "front" if model.pareto else "beaten"
    )
    radius = max(SMALLEST, LARGEST * math.sqrt(model.size / largest))
    return Point(model, across(_speed(run, model)), up(heights[0]), radius, low, high, kind)


def _grid(run: FinishedRun, across: Axis, up: Axis, ground: Box) -> list[Markup]:
    drawn = []
    for value in across.ticks(6 if ground.right > 500 else 4):
        x = across(value)
        drawn.append(tag("line", x1=x, x2=x, y1=ground.top, y2=ground.bottom))
        drawn.append(tag("text", f"{value:g} ×", x=x, y=ground.bottom + 18, text_anchor="middle"))
    for value in up.ticks():
        shown = round(100 * run.sign * value, 6) if run.fraction or not run.scored else run.sign * value
        drawn.append(tag("line", x1=ground.left, x2=ground.right, y1=up(value), y2=up(value)))
        drawn.append(tag("text", f"{shown:g}".replace("-", "−"), x=ground.left - 8, y=up(value) + 4, text_anchor="end"))
    middle = (ground.left + ground.right) / 2
    at = f", {run.target}" if run.target and run.chosen.speedup and ground.right > 500 else ""
    drawn.append(tag("text", f"times as fast as FP32{at} →", x=middle, y=ground.bottom + 40, text_anchor="middle"))
    better, centre = "" if run.sign > 0 else " (less is better)", (ground.top + ground.bottom) / 2
    turned = f"translate(13.0 {centre:g}) rotate(-90)"
    drawn.append(tag("text", f"{_what(run)}{better} →", text_anchor="middle", transform=turned))
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


def _drawn(run: FinishedRun, point: Point) -> Markup:
    model = point.model
    said = described(run, model)
    inside = [tag("title", said)]
    if point.low is not None and point.high is not None:
        inside.append(tag("line", x1=point.x, x2=point.x, y1=point.low, y2=point.high, class_="whisker"))
    form = _square if model.trained else _circle
    if point.kind == "chosen":
        inside.append(form(point, point.radius + 4, "ring"))
    inside.append(form(point, point.radius, "dot"))
    trained = " trained" if model.trained else ""
    return tag(
        "g",
        *inside,
        class_=f"point {point.kind}{trained}",
        tabindex="0",
        role="img",
        aria_label=said,
        data_name=model.name,
    )


def _circle(point: Point, radius: float, kind: str) -> Markup:
    return tag("circle", cx=point.x, cy=point.y, r=radius, class_=kind)


def _square(point: Point, radius: float, kind: str) -> Markup:
    """A square as large as the circle."""
    side = math.sqrt(math.pi) * radius
    left, top = point.x - side / 2, point.y - side / 2
    return tag("rect", x=left, y=top, width=side, height=side, class_=kind)


def described(run: FinishedRun, model: ModelResult) -> str:
    """A model in one line: what a pointer that rests on it shows."""
    parts = []
    if model.score is not None:
        parts.append(f"{run.metric} {n.score_within(run, model.score, model.interval)}")
    if model.drop is not None:
        parts.append(f"drop {n.score(run, model.drop)}")
    if model.same_answer is not None:
        parts.append(f"{n.percent(model.same_answer)} % same answers")
    if model.speedup is not None and run.target is not None:
        parts.append(f"{n.times(model.speedup.ratio)} × at {run.target}")
    parts += [f"{n.times(speed.ratio)} × at {n.batch(size)}" for size, speed in model.speed_by_batch.items()]
    if model.size:
        parts.append(f"{n.megabytes(model.size)} MB")
    if model.why_not:
        parts.append(f"not chosen: {model.why_not}")
    marks = ["chosen"] if model is not run.fp32 and model.name == run.best else []
    marks += ["trained"] if model.trained else []
    marked = f" ({', '.join(marks)})" if marks else ""
    return f"{model.name}{marked}: {', '.join(parts)}"


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` on pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers, at most so many.

        >>> Axis(0.4, 3.3, 0, 100).ticks()
        [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
        """
        rough = (self.high - self.low) / most
        scale = 10.0 ** math.floor(math.log10(rough))
        step = next(size * scale for size in STEPS if size * scale >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        found = [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [round(value, 10) for value in found]


def axis(values: Sequence[float], start: float, end: float, *, narrowest: float) -> Axis:
    """An axis for values, with room at both ends and at least so much from end to end."""
    low, high = min(values), max(values)
    lacking = max(0.0, narrowest - (high - low)) / 2
    low, high = low - lacking, high + lacking
    more = 0.12 * (high - low)
    return Axis(low - more, high + more, start, end)
