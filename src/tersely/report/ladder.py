"""The ladder: what was tried in which order, what came of it in how many minutes, and what there was no time for."""

from __future__ import annotations

import math

from . import numbers as n
from .markup import Cell, Column, ReportTable, TableLine
from .run import FinishedRun, LadderRung, ModelResult


def ladder(run: FinishedRun) -> ReportTable | None:
    """A line for each strategy and model of a rung; None where everything was made at once and nothing to order.

    Of candidates that differ in calibration alone the chosen one is shown, else the one with the least drop.
    """
    searched = run.target is not None or len(run.rungs) > 1 or bool(run.not_tried)
    if not searched or not run.rungs:
        return None
    at = f"at {run.target}" if run.target else "geometric mean over batch sizes"
    columns = [
        Column("tried", note="with its best candidate: the chosen one, else the one with the least drop"),
        Column("× FP32", True, f"times as fast as the fastest FP32 engine, {at}"),
        Column("drop, 95 %", True, "points below FP32 on the same rows" if run.fraction else "below FP32"),
        *([] if run.scored else [Column("same answers %", True)]),
        Column("MB", True, "megabytes that are loaded"),
        Column("minutes", True, "of all that was made and measured together"),
    ]
    lines = [line for rung in run.rungs for line in _rung_lines(run, rung)]
    blank = [""] * (len(columns) - 1)
    lines += [TableLine([(title, "not tried: no time left"), *blank], "left") for title in run.not_tried]
    return ReportTable(columns, lines)


def ladder_summary(run: FinishedRun) -> str:
    """The limit and the order in a sentence or two."""
    said = "In the order in which it was tried"
    if run.max_drop is not None:
        said += f", cheapest first. The drop may be {n.drop_limit(run)} at most ({run.limit_by})"
    if run.target is not None:
        said += f". Speeds are at {run.target}"
    return f"{said}."


def _rung_lines(run: FinishedRun, rung: LadderRung) -> list[TableLine]:
    groups: dict[tuple[str, str | None], list[ModelResult]] = {}
    by_name = {model.name: model for model in run.candidates}
    for name in rung.names:
        if (model := by_name.get(name)) is not None:
            groups.setdefault((model.strategy, model.model), []).append(model)
    minutes = n.minutes(rung.minutes)
    if not groups:
        blank = [""] * (3 if run.scored else 4)
        return [TableLine([(rung.title, "nothing that was not there already"), *blank, minutes])]
    lines: list[TableLine] = []
    for group in groups.values():
        title = rung.title if len(groups) == 1 else _title(run, group[0])
        lines.append(_line(run, title, group, "" if lines else minutes))
    return lines


def _line(run: FinishedRun, title: str, group: list[ModelResult], minutes: str) -> TableLine:
    model = min(
        group,
        key=lambda candidate: (candidate.name != run.best, _harm(candidate), -(candidate.speed or 0), candidate.name),
    )
    chosen = model.name == run.best
    others = f" and {n.count(len(group) - 1, 'other', 'others')}" if len(group) > 1 else ""
    cells: list[Cell] = [
        (f"{title}{', chosen' if chosen else ''}", f"{model.name}{others}"),
        n.times(model.speed),
        (n.score(run, model.drop), n.interval(run, model.drop_interval)),
        *([] if run.scored else [n.percent(model.same_answer)]),
        n.megabytes(model.size) if model.size else "",
        minutes,
    ]
    return TableLine(cells, "chosen" if chosen else None)


def _harm(model: ModelResult) -> float:
    """What a candidate loses: score or, where none was scored, answers."""
    if model.drop is not None:
        return model.drop
    return math.inf if model.same_answer is None else 1 - model.same_answer


def _title(run: FinishedRun, model: ModelResult) -> str:
    """A strategy, and the speed-up that it was made for."""
    pruned = run.pruned_of(model)
    shot = None if pruned is None else pruned.shot
    return model.strategy if shot is None else f"{model.strategy} at {shot.target:g} ×"
