"""The answer first: what was chosen, what it scores, what it gains, and how far to believe that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..strategy import DYNABERT, PRUNE
from . import numbers as n
from .run import FinishedRun, ModelResult

NOTICEABLE = 1.05
"""Speeds within 5 % are not told apart."""


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
        target = f"at {run.target}, which chose" if best.speedup and run.target else ""
        each = [f"{n.times(speed.ratio)} × at {n.batch(size)}" for size, speed in best.speed_by_batch.items()]
        threads = run.cpu.get("threads_of_timings")
        on = f"on {best.engine}, " if best.engine else ""
        against = f"{on}against the fastest FP32 engine"
        used = f"{threads} thread" if threads == 1 else f"{threads} threads"
        more = ("slower than FP32 here",) if (best.speed or 1) < 1 else ()
        found.append(Fact("Times as fast", f"{n.times(best.speed)} ×", (*more, target, ", ".join(each), against, used)))
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
        said.append(f"Not met: no candidate keeps the drop to {n.drop_limit(run)} ({run.limit_by}).")
    said += [*_missed(run), *rivals(run), *nothing_pruned(run)]
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


def _missed(run: FinishedRun) -> list[str]:
    """Speed-ups that were asked for and not reached; those that a search looked at were nobody's wish."""
    if run.target is None or not run.wishes:
        return []
    missed = run.target.missed.items()
    return [
        f"Not met: {name} is {n.times(seen)} × as fast, {target:g} × was asked for." for name, (target, seen) in missed
    ]


def rivals(run: FinishedRun) -> list[str]:
    """Why not a faster one, and why not a pruned one: of each the one with the least drop, with the reason."""
    best = run.chosen
    others = [model for model in run.candidates if model is not best and model.why_not]
    faster = _nearest(
        [model for model in others if model.speed and best.speed and model.speed > NOTICEABLE * best.speed]
    )
    pruned = None if _is_pruned(best) else _nearest([model for model in others if _is_pruned(model)])
    if faster is not None and pruned is not None and _is_pruned(faster):
        pruned = None
    found = {"Faster": faster, "Pruned": pruned}
    return [f"{what}, not chosen: {_rival(run, model)}" for what, model in found.items() if model is not None]


def nothing_pruned(run: FinishedRun) -> list[str]:
    """Why `auto` pruned nothing, where it did not and time was not what was lacking."""
    titles = [*(rung.title for rung in run.rungs), *run.not_tried]
    if not run.by_itself or any(PRUNE in re.split("[+ ]", title) for title in titles):
        return []
    if run.latency_tables:
        why = "by the measured times of its layers, fewer of them would gain too little. Was the machine quiet?"
    else:
        why = "that needs the model itself, not its graph alone."
    return [f"No pruned model was tried: {why}"]


def _is_pruned(model: ModelResult) -> bool:
    """Whether heads, neurons or layers were cut."""
    return any(step in (PRUNE, DYNABERT) for step in model.steps)


def _nearest(models: Sequence[ModelResult]) -> ModelResult | None:
    """The one that loses least, then the fastest."""
    return min(models, key=lambda model: (model.drop or 0.0, -(model.speed or 0.0), model.name), default=None)


def _rival(run: FinishedRun, model: ModelResult) -> str:
    known = [f"{n.times(model.speed)} ×"] if model.speed else []
    known += [] if model.drop is None else [f"drop {n.score_within(run, model.drop, model.drop_interval)}"]
    return f"{model.name} ({', '.join(known)}): {model.why_not}." if known else f"{model.name}: {model.why_not}."
