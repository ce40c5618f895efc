"""Choose among candidates: the score must hold and answers stay the same; then speed, size and name decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import UserError
from ..measure.intervals import Array, Difference, Value, paired

FIDELITY = 0.01
"""How far below the most faithful candidate's share of equal answers another may be: one point."""

STEP = 1.05
"""Speeds within one step of 5 % are equal: timings on a shared machine do not tell them apart."""

MANY, FINALISTS = 6, 4
"""More candidates than the first are screened; so many of them, at least, get the full score."""

# Fidelity and speed come out of divisions: 0.99 - 0.98 is a little more than 0.01.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Contender:
    """What choosing looks at. None: not measured.

    `statistics` [rows, k] of the primary metric, rows the same for all; `score`: the metric itself, the more the
    better, where it is one of the whole and has no statistics; `fidelity`: share of answers equal to the FP32
    model's; `speed`: times faster than the baseline; `size` in bytes; `logit_change`: mean |Δlogit| against FP32.
    """

    name: str
    size: int
    fidelity: float | None = None
    speed: float | None = None
    logit_change: float = 0.0
    statistics: Array | None = field(default=None, repr=False)
    score: float | None = None


@dataclass(frozen=True)
class Choice:
    """The best by name, all that could have been it (best first), why each other is not it, and the rule in words."""

    best: str
    eligible: tuple[str, ...]
    reasons: Mapping[str, str]
    rule: str


def choose(candidates: Sequence[Contender], value: Value | None = None, *, greater_is_better: bool = True) -> Choice:
    """Pick one; `value` is the metric's, for candidates that were scored. Their order does not matter.

    Where no candidate both holds the score and is faithful, the score goes first: fidelity is then compared among
    those whose score holds. Costs a paired bootstrap a candidate: 0.01 s (408 rows) to 0.5 s (5,000 that all differ).

    >>> small, fast = Contender("KL128", 23_000_000, 0.98, 1.6), Contender("mse128", 24_000_000, 0.985, 1.9)
    >>> chosen = choose([small, fast])
    >>> chosen.best, chosen.reasons
    ('mse128', {'KL128': 'slower by 19 %'})
    """
    _check(candidates, value)
    ordered = sorted(candidates, key=lambda one: one.name)
    scored = [one for one in ordered if one.statistics is not None]
    of_whole = [one for one in ordered if one.score is not None]
    reasons = {one.name: "not scored" for one in ordered if scored and one.statistics is None}
    if scored and value is not None:
        reasons |= _worse(scored, value, greater_is_better)
    if of_whole:
        reasons |= _below(of_whole)
    holding = [one for one in ordered if one.name not in reasons]
    faithful, unfaithful, score_first = _faithful(holding, scored or ordered)
    fastest = max((one.speed for one in faithful if one.speed is not None), default=None)
    ranked = sorted(faithful, key=lambda one: (_step(one.speed, fastest), one.size, one.logit_change, one.name))
    reasons |= unfaithful | {one.name: _behind(one, ranked[0], fastest) for one in ranked[1:]}
    return Choice(
        best=ranked[0].name,
        eligible=tuple(one.name for one in ranked),
        reasons={one.name: reasons[one.name] for one in ordered if one.name in reasons},
        rule=_rule(ordered, bool(scored), score_first, bool(of_whole)),
    )


@dataclass(frozen=True)
class Screened:
    """A candidate after screening on a few rows: fidelity, and what tells equal ones apart; `model`: what it is of."""

    name: str
    strategy: str
    fidelity: float
    logit_change: float = 0.0
    model: str = ""


def screen(candidates: Sequence[Screened], *, many: int = MANY, finalists: int = FINALISTS) -> tuple[str, ...]:
    """Names of those that get the full score: all, or of many the most faithful, and of each strategy and model one.

    Fidelity on 256 rows has few different values; the smaller change of logits comes first among equal ones.

    >>> close = [Screened(f"mse{rows}", "ptq", 0.9 + rows / 1000) for rows in (4, 8, 16, 32, 64)]
    >>> screen([*close, Screened("KL4", "ptq", 0.8), Screened("dynamic", "dynamic", 0.85)])
    ('mse64', 'mse32', 'mse16', 'mse8', 'dynamic')
    """
    ranked = sorted(candidates, key=lambda one: (-one.fidelity, one.logit_change, one.name))
    if len(ranked) <= many:
        return tuple(one.name for one in ranked)
    seen: set[tuple[str, str]] = set()
    kept = []
    for place, one in enumerate(ranked):
        if place < finalists or (one.strategy, one.model) not in seen:
            kept.append(one.name)
        seen.add((one.strategy, one.model))
    return tuple(kept)


def _check(candidates: Sequence[Contender], value: Value | None) -> None:
    if not candidates:
        raise UserError("There are no candidates to choose from.")
    names = [one.name for one in candidates]
    if len(set(names)) < len(names):
        raise ValueError(f"Two candidates have the same name: {', '.join(sorted(names))}.")
    if any(one.speed is not None and not one.speed > 0 for one in candidates):
        raise ValueError("A speed must be above 0.")
    if value is None and any(one.statistics is not None for one in candidates):
        raise ValueError("Scored candidates need the metric's value function.")


def _worse(scored: Sequence[Contender], value: Value, greater_is_better: bool) -> dict[str, str]:
    """Those whose paired 95 % interval of the difference to the best-scoring one lies on the wrong side of 0."""
    sign = 1.0 if greater_is_better else -1.0
    statistics = {one.name: one.statistics for one in scored if one.statistics is not None}
    scores = {name: sign * float(value(rows.sum(axis=0))) for name, rows in statistics.items()}
    top = max(scored, key=lambda one: (scores[one.name], one.fidelity or 0.0)).name
    found = {}
    for name, rows in statistics.items():
        drop = paired(statistics[top], rows, value, greater_is_better=greater_is_better)
        if drop.low > 0:
            found[name] = _lower(drop, greater_is_better)
    return found


def _below(scored: Sequence[Contender]) -> dict[str, str]:
    """Those below the best score, of which no interval tells how certain that is."""
    best = max(one.score for one in scored if one.score is not None)
    behind = {one.name: best - one.score for one in scored if one.score is not None}
    return {name: f"score worse by {less:.3g}" for name, less in behind.items() if less > ROUNDING}


def _faithful(holding: Sequence[Contender], pool: Sequence[Contender]) -> tuple[list[Contender], dict[str, str], bool]:
    """Those within a point of the most faithful, why not the others, and whether none of them holds the score."""
    for among in (pool, holding):
        most = max((one.fidelity for one in among if one.fidelity is not None), default=None)
        if most is None:
            return list(holding), {}, False
        behind = {one.name: math.inf if one.fidelity is None else most - one.fidelity for one in holding}
        near = [one for one in holding if behind[one.name] <= FIDELITY + ROUNDING]
        if near:
            break
    return near, {one.name: _unfaithful(behind[one.name]) for one in holding if one not in near}, among is not pool


def _unfaithful(behind: float) -> str:
    return "answers not compared" if math.isinf(behind) else f"less faithful by {100 * behind:.1f} points"


def _step(speed: float | None, fastest: float | None) -> float:
    """How many steps of 5 % behind the fastest; what was not timed is behind all that were."""
    if fastest is None:
        return 0
    return math.inf if speed is None else math.floor(math.log(fastest / speed) / math.log(STEP) + ROUNDING)


def _lower(drop: Difference, greater_is_better: bool) -> str:
    if greater_is_better:
        points = f"{100 * drop.drop:.1f} points ({100 * drop.low:.1f} to {100 * drop.high:.1f})"
        return f"score lower by {points}"
    return f"error higher by {drop.drop:.3g} ({drop.low:.3g} to {drop.high:.3g})"


def _behind(one: Contender, best: Contender, fastest: float | None) -> str:
    """Why an eligible candidate comes after the best."""
    if _step(one.speed, fastest) > _step(best.speed, fastest):
        if one.speed is None or fastest is None:
            return "not timed"
        return f"slower by {100 * (fastest / one.speed - 1):.0f} %"
    if one.size > best.size:
        return f"larger by {_megabytes(one.size - best.size)}"
    if one.logit_change > best.logit_change:
        return f"its logits move more ({one.logit_change:.4f} against {best.logit_change:.4f})"
    return f"equal to {best.name}, which comes first by name"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 50_000 else f"{size:,} bytes"


def _rule(candidates: Sequence[Contender], scored: bool, score_first: bool, of_whole: bool = False) -> str:
    if len(candidates) == 1:
        return "There is one candidate."
    tests = []
    if scored:
        tests.append("whose score is not below the best one's (the paired 95 % interval of the difference contains 0)")
    if of_whole:
        tests.append("with the best score (one of the whole, without an interval)")
    if any(one.fidelity is not None for one in candidates):
        among = " of these" if score_first else ""
        tests.append(f"whose answers equal the FP32 model's within one point of the most faithful{among}")
    pool = f"the candidates {' and '.join(tests)}" if tests else "all candidates"
    timed = any(one.speed is not None for one in candidates)
    order = (
        "the fastest in steps of 5 %, then " if timed else ""
    ) + "the smallest, then the one whose logits move least, then the first by name"
    return f"{'' if scored or of_whole else 'Nothing was scored. '}Chosen among {pool}: {order}."
