"""The answer first: what was chosen, what it scores, what it gains, and how far to believe that."""

from __future__ import annotations

from dataclasses import dataclass

from . import numbers as n
from .run import FinishedRun


@dataclass(frozen=True)
class Fact:
    """One figure with its name and what stands beside it."""

    name: str
    figure: str
    beside: tuple[str, ...]


def headline(run: FinishedRun) -> str:
    """The result in one sentence."""
    best, fp32 = run.chosen, run.fp32
    says = ""
    if run.scored:
        says = f"scores {run.metric} {n.score(run, best.score)} (FP32 {n.score(run, fp32.score)})"
    elif best.same_answer is not None:
        says = f"gives FP32's answer to {n.percent(best.same_answer)} % of the rows"
    gains = [f"{n.times(best.speed)} × as fast"] if best.speed is not None else []
    if best.size and fp32.size:
        what, ratio = _size(fp32.size / best.size)
        gains.append(f"{ratio} {what.removeprefix('Times ')}")
    is_so = f"is {' and '.join(gains)}" if gains else ""
    between = ", " if len(gains) > 1 else " and "
    return f"{best.name} {between.join(part for part in (says, is_so) if part) or 'was chosen'}."


def facts(run: FinishedRun) -> list[Fact]:
    """Score, speed, size and fidelity of the chosen model."""
    best, fp32 = run.chosen, run.fp32
    found = [_score(run)]
    if best.speed_by_batch:
        each = [f"{n.times(speed.ratio)} × at {n.batch(size)}" for size, speed in best.speed_by_batch.items()]
        threads = run.cpu.get("threads_of_timings")
        on = f"on {best.engine}, " if best.engine else ""
        against = f"{on}against the fastest FP32 engine"
        used = f"{threads} thread" if threads == 1 else f"{threads} threads"
        more = ("slower than FP32 here",) if (best.speed or 1) < 1 else ()
        found.append(Fact("Times as fast", f"{n.times(best.speed)} ×", (*more, ", ".join(each), against, used)))
    if best.size and fp32.size:
        sizes = f"{n.megabytes(best.size)} MB loaded, FP32 {n.megabytes(fp32.size)} MB"
        share = f"{100 * best.size / fp32.size:.1f} % of FP32"
        memory: tuple[str, ...] = ()
        if best.memory_mb is not None and fp32.memory_mb is not None:
            memory = (f"process after a first batch: {best.memory_mb:.0f} MB, FP32 {fp32.memory_mb:.0f} MB",)
        found.append(Fact(*_size(fp32.size / best.size), (sizes, share, *memory)))
    if best.same_answer is not None:
        moved = best.mean_abs_logit_change
        beside = (f"mean |Δlogit| {n.small(moved)}",) if moved is not None else ()
        found.append(Fact("Same answers as FP32", f"{n.percent(best.same_answer)} %", beside))
    return found


def _size(ratio: float) -> tuple[str, str]:
    return ("Times smaller", f"{n.times(ratio)} ×") if ratio >= 1 else ("Times larger", f"{n.times(1 / ratio)} ×")


def _score(run: FinishedRun) -> Fact:
    best = run.chosen
    if not run.scored:
        return Fact(run.metric, "not scored", ("there were no labelled rows",))
    beside = []
    if best.interval:
        beside.append(f"95 % interval {n.interval(run, best.interval)}")
    beside.append(f"FP32 {n.score(run, run.fp32.score)}")
    if best.drop is not None:
        beside.append(f"drop {n.score_within(run, best.drop, best.drop_interval)}")
    if best.emulated:
        beside.append("scored with exact sums in floats: this CPU has none in integers")
    return Fact(run.metric, n.score(run, best.score), tuple(beside))


def stamps(run: FinishedRun) -> list[str]:
    """How far to believe the score, and what was promised and not kept."""
    said = []
    best, on, rows = run.chosen, run.rows.get("chosen_on"), run.rows.get("scoring")
    if not run.met_max_drop and run.max_drop is not None:
        limit = f"{n.score(run, run.max_drop)}{' points' if run.fraction else ''}"
        said.append(f"Not met: no candidate keeps the drop to {limit} (--max_drop).")
    if run.scored and on == "eval rows, which also chose":
        many = f"The {rows} rows" if rows else "The rows"
        said.append(f"{many} that give this score also chose the model, so it may flatter it a little.")
    elif not run.scored and rows:
        said.append(f"Nothing was scored. {rows} {on or 'rows'} show how far answers move.")
    if run.test is not None:
        test = run.test.best
        fp32 = f"FP32 {n.score(run, run.test.fp32.score)}"
        drop = "" if test.drop is None else f", drop {n.score_within(run, test.drop, test.drop_interval)}"
        scored = f"{run.metric} {n.score_within(run, test.score, test.interval)}"
        said.append(f"On {test.rows} test rows, which chose nothing: {scored}, {fp32}{drop}.")
    if run.scored and best.drop_interval and best.drop_interval[0] < 0 < best.drop_interval[1]:
        said.append("The interval of the drop holds 0: these rows do not tell the two models' scores apart.")
    return said
