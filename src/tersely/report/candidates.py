"""All models of a run as one table: FP32, the chosen one, the others, and why each was not chosen."""

from __future__ import annotations

from . import numbers as n
from .run import Model, Run
from .table import Cell, Column, Line, Table


def candidates(run: Run) -> Table:
    """A line for FP32 and one for each candidate, the chosen one first."""
    unit = "points" if run.fraction else ""
    columns = [
        Column("model"),
        Column(f"{run.metric}, 95 %", True, unit or None),
        Column("drop, 95 %", True, f"{unit} below FP32 on the same rows; the interval is paired".strip()),
        Column("same answers %", True, "share of answers equal to FP32's"),
        Column("Δlogit", True, "mean |Δlogit|, the change of a logit against FP32"),
        Column("MB", True, "megabytes that are loaded"),
        Column("% of FP32", True, "its size"),
        *[Column(f"× at {n.batch(size)}", True, "times as fast as the fastest FP32 engine") for size in run.batches],
        Column("Pareto", note="not beaten in score, speed and size at once"),
        Column("why not chosen"),
    ]
    ordered = sorted(run.candidates, key=lambda one: one.name != run.best)
    return Table(columns, [_line(run, one) for one in (run.fp32, *ordered)])


def _line(run: Run, one: Model) -> Line:
    is_fp32 = one is run.fp32
    chosen = not is_fp32 and one.name == run.best
    speeds = ["1.00" if is_fp32 else _speed(one, size) for size in run.batches]
    engine = ", ".join(dict.fromkeys(one.engine_by_batch.values())) if is_fp32 else one.engine
    made = " on ".join(part for part in (one.strategy, engine) if part)
    cells: list[Cell] = [
        (f"{one.name}{', chosen' if chosen else ''}", made),
        ("not scored", "") if one.score is None else (n.score(run, one.score), n.interval(run, one.interval)),
        (n.score(run, one.drop), n.interval(run, one.drop_interval)),
        n.percent(one.same_answer),
        n.small(one.mean_abs_logit_change),
        n.megabytes(one.size) if one.size else "",
        f"{100 * one.size / run.fp32.size:.1f}" if one.size and run.fp32.size else "",
        *speeds,
        "yes" if one.pareto else "",
        one.why_not or "",
    ]
    return Line(cells, "fp32" if is_fp32 else "chosen" if chosen else None, None if is_fp32 else one.name)


def _speed(one: Model, size: str) -> str:
    found = one.speed_by_batch.get(size)
    return "" if found is None else n.times(found.ratio)


def remarks(run: Run) -> list[str]:
    """What was made and is not in the table."""
    said = [f"{name} is the same as {twin}." for name, twin in run.same.items()]
    if run.screened_out:
        names = ", ".join(str(one.get("name")) for one in run.screened_out)
        said.append(f"Left out after a look at a few rows: {names}.")
    for one in run.pruned:
        said.append(_pruned(run, one))
    return said


def _pruned(run: Run, one: object) -> str:
    told = dict(one) if isinstance(one, dict) else {}
    parts = []
    if told.get("width") is not None:
        parts.append(f"width {told['width']}, depth {told.get('depth')}")
    if isinstance(told.get("torch_score"), float):
        parts.append(f"{run.metric} {n.score(run, told['torch_score'])} in torch at step {told.get('step')}")
    cut = told.get("vocabulary")
    if isinstance(cut, dict) and "tokens_after" in cut:
        parts.append(f"{cut['tokens_after']:,} of {cut.get('tokens_before'):,} tokens")
    return f"Pruned model {told.get('name')}: {'; '.join(parts)}."
