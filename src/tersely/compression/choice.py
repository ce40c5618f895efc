"""What was measured of candidates, and the choice: score and answers must hold, then speed, size and name decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import UserError
from ..measure.intervals import Array, Difference, Value, paired
from ..measure.score import Answers, Comparison, Score
from .candidate import Candidate

FIDELITY = 0.01
"""How far below the most faithful candidate's share of equal answers another may be: one point."""

STEP = 1.05
"""Speeds within one step of 5 % are equal: timings on a shared machine do not tell them apart."""

MANY, FINALISTS = 6, 4
"""More candidates than the first are screened; so many of them, at least, get the full score."""

LIMIT, REACH = 0.005, 0.02
"""A model's score holds if it fell by half a point at most, and surely by no more than two."""

FASTEST = "the fastest in steps of 5 %, then "
LAST = "the smallest, then the one whose logits move least, then the first by name"
ORDERS = {
    "speed": f"{FASTEST}{LAST}",
    "score": f"the best score, then {FASTEST}{LAST}",
    "fidelity": f"the most answers equal to FP32's, then {FASTEST}{LAST}",
    "size": f"the smallest, then {FASTEST}the one whose logits move least, then the first by name",
}
"""What decides among candidates that hold, by `--prefer`."""

# Fidelity and speed come out of divisions: 0.99 - 0.98 is a little more than 0.01.
ROUNDING = 1e-9


Ratio = tuple[float, float, float]
"""Times as fast as the fastest FP32 engine, and its spread."""


@dataclass(frozen=True, eq=False)
class Measured:
    """A candidate and what was measured of it. `speed` by batch size; `speedup` at the setting that one is meant at.

    `score`: None where there are no labelled rows. `emulated`: its graph is not for this machine's CPU class, and was
    scored with exact sums in floats.
    """

    candidate: Candidate
    engine: str
    answers: Answers = field(repr=False)
    score: Score | None
    comparison: Comparison
    size: int
    emulated: bool = False
    speed: dict[int, Ratio] = field(default_factory=dict)
    speedup: Ratio | None = None
    evaluation: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Seconds to answer the rows with FP32 and with this, by threads; for dynamic alone."""
    memory_mb: float | None = None
    folder_size: int = 0
    sign: int = 1
    """-1 where a smaller score is the better one."""

    @property
    def name(self) -> str:
        """The name of the candidate."""
        return self.candidate.name

    @property
    def statistics(self) -> Array | None:
        """Those of the primary metric [rows, k]; None without labels, and where the metric has none."""
        return None if self.score is None else self.score.statistics

    @property
    def fidelity(self) -> float:
        """Share of answers that are equal to the FP32 model's."""
        return self.comparison.same_answer

    @property
    def logit_change(self) -> float:
        """Mean |Δlogit| against FP32; 0 where no row can be compared."""
        return self.comparison.mean_abs_logit_change or 0.0

    @property
    def mean_speed(self) -> float | None:
        """Times as fast as FP32, the geometric mean over batch sizes; None: not timed."""
        ratios = [ratio for ratio, _, _ in self.speed.values()]
        return math.prod(ratios) ** (1 / len(ratios)) if ratios else None

    @property
    def ranked_speed(self) -> float | None:
        """The speed that decides: at the setting that a speed-up is meant at, else the mean over batch sizes."""
        return self.speedup[0] if self.speedup else self.mean_speed

    def is_within(self, max_drop: float | None) -> bool:
        """Whether its score dropped by no more than is allowed; without a limit it did not."""
        drop = self.comparison.drop
        return max_drop is None or (drop is not None and drop.drop <= max_drop + ROUNDING)


@dataclass(frozen=True)
class Choice:
    """The best by name, all that could have been it (best first), why each other is not it, and the rule in words."""

    best: str
    eligible: tuple[str, ...]
    reasons: Mapping[str, str]
    rule: str


def choose(
    candidates: Sequence[Measured],
    value: Value | None = None,
    max_drop: float | None = None,
    *,
    prefer: str = "speed",
    bounded: bool = True,
    limit: str = "--max_drop",
) -> Choice:
    """Pick one among those that keep to `max_drop`, or among all where none does. Their order does not matter.

    Fidelity tells candidates of the same weights apart. Of a model that was pruned or trained it says little: its
    answers may differ and be as good. So one is picked for each model, and between models drop and speed decide.
    `value` is the metric's, for candidates with statistics; `bounded`: whether it is a share. `prefer`: what decides
    among those that hold; `limit`: what `max_drop` is called. Costs a paired bootstrap a candidate: 0.01 s (408 rows)
    to 0.5 s (5,000 that all differ).
    """
    _check(candidates, value)
    pool = [one for one in candidates if one.is_within(max_drop)] or list(candidates)
    models: dict[str, list[Measured]] = {}
    for one in sorted(pool, key=lambda one: one.name):
        models.setdefault(one.candidate.parent.digest, []).append(one)
    if len(models) == 1 or any(one.comparison.drop is None for one in pool):
        chosen = _choose(pool, value, prefer)
    else:
        of_each = [_choose(group, value, prefer) for group in models.values()]
        chosen = _between(of_each, pool, max_drop, prefer, bounded, limit)
    beyond = {one.name: f"drop above {limit}" for one in candidates if one not in pool}
    rule = f"Those whose drop is above {limit} are out. {chosen.rule}" if beyond else chosen.rule
    return Choice(chosen.best, chosen.eligible, {**chosen.reasons, **beyond}, rule)


def _between(
    choices: Sequence[Choice], pool: Sequence[Measured], max_drop: float | None, prefer: str, bounded: bool, limit: str
) -> Choice:
    """Pick one of the best of several models: those whose score fell too far are out, then what is preferred."""
    by_name = {one.name: one for one in pool}
    firsts = [by_name[choice.best] for choice in choices]
    out = {one.name: why for one in firsts if (why := _fell(one, max_drop, bounded))}
    left = [one for one in firsts if one.name not in out]
    note = ""
    if not left:  # better the user's own weights, else the least harm
        left = [one for one in firsts if not one.candidate.parent.made_from]
        left = left or [min(firsts, key=lambda one: (one.comparison.drop.drop, one.name))]  # type: ignore[union-attr]
        out = {name: why for name, why in out.items() if by_name[name] not in left}
        note = " No model's score is sure to hold: the user's own weights go first, then the least drop."
    ranked, behind = _ranked(left, prefer)
    within = {
        name: f"of its model {choice.best} is better: {why}"
        for choice in choices
        for name, why in choice.reasons.items()
    }
    reasons = within | out | behind
    if max_drop is None:
        reach = f", or may be above {100 * REACH:g} (the 95 % interval)" if bounded else ""
        limit = (f"{100 * LIMIT:g} points" if bounded else f"{100 * LIMIT:g} % of FP32's") + reach
    rule = f"Of each model one: {choices[0].rule} Between models: out is whose drop is above {limit}; "
    rule += f"then {ORDERS[prefer]}.{note}"
    return Choice(ranked[0].name, tuple(one.name for one in ranked), dict(sorted(reasons.items())), rule)


def _fell(one: Measured, max_drop: float | None, bounded: bool) -> str | None:
    """Why a model's score does not hold against FP32's; None where it does.

    `max_drop` was looked at before. Whether few rows could hide a large drop is asked of other weights alone.
    """
    drop = one.comparison.drop
    if max_drop is not None or drop is None or one.score is None:
        return None
    limit = LIMIT if bounded else LIMIT * abs(one.score.value + one.sign * drop.drop)
    if drop.drop > limit + ROUNDING:
        return f"drop of {_amount(drop.drop, bounded)} above the limit of {_amount(limit, bounded)}"
    if bounded and one.candidate.parent.made_from and drop.high > REACH + ROUNDING:
        return f"too few rows to tell: its drop may be {_amount(drop.high, bounded)} (more than {100 * REACH:g})"
    return None


def _amount(drop: float, bounded: bool) -> str:
    return f"{100 * drop:.2f} points" if bounded else f"{drop:.3g}"


def _choose(candidates: Sequence[Measured], value: Value | None, prefer: str) -> Choice:
    ordered = sorted(candidates, key=lambda one: one.name)
    scored = [one for one in ordered if one.statistics is not None]
    of_whole = {one.name: one.sign * one.score.value for one in ordered if one.score and one.statistics is None}
    reasons = {one.name: "not scored" for one in ordered if scored and one.statistics is None}
    if scored and value is not None:
        reasons |= _worse(scored, value)
    if of_whole:
        reasons |= _below(of_whole)
    holding = [one for one in ordered if one.name not in reasons]
    faithful, unfaithful, score_first = _faithful(holding, scored or ordered)
    ranked, behind = _ranked(faithful, prefer)
    reasons |= unfaithful | behind
    return Choice(
        best=ranked[0].name,
        eligible=tuple(one.name for one in ranked),
        reasons={one.name: reasons[one.name] for one in ordered if one.name in reasons},
        rule=_rule(ordered, bool(scored), score_first, bool(of_whole), prefer),
    )


def _ranked(left: Sequence[Measured], prefer: str) -> tuple[list[Measured], dict[str, str]]:
    """All that could be the best, in the order of preference, and why each comes after the first."""
    fastest = max((one.ranked_speed for one in left if one.ranked_speed is not None), default=None)

    def key(one: Measured) -> tuple[float, ...]:
        score = -one.sign * one.score.value if one.score else 0.0
        firsts = {"score": (score,), "fidelity": (-one.fidelity, one.logit_change), "size": (float(one.size),)}
        return (*firsts.get(prefer, ()), _step(one.ranked_speed, fastest), one.size, one.logit_change)

    ranked = sorted(left, key=lambda one: (key(one), one.name))
    return ranked, {one.name: _behind(one, ranked[0], fastest, prefer) for one in ranked[1:]}


def screen(candidates: Sequence[Measured], *, many: int = MANY, finalists: int = FINALISTS) -> tuple[str, ...]:
    """Names of those that get the full score: all, or of many the most faithful, and of each strategy and model one.

    Fidelity on 256 rows has few different values; the smaller change of logits comes first among equal ones.
    """
    ranked = sorted(candidates, key=lambda one: (-one.fidelity, one.logit_change, one.name))
    if len(ranked) <= many:
        return tuple(one.name for one in ranked)
    seen: set[tuple[str, str]] = set()
    kept = []
    for place, one in enumerate(ranked):
        origin = one.candidate.plan.name, one.candidate.parent.digest
        if place < finalists or origin not in seen:
            kept.append(one.name)
        seen.add(origin)
    return tuple(kept)


def pareto(candidates: Sequence[Measured]) -> tuple[str, ...]:
    """Names of those of which no other is as good in score, speed and size at once, and better in one.

    Without labels fidelity stands for the score. Speeds within a step of 5 % are equal, as where the best is chosen.
    """
    return tuple(one.name for one in candidates if not any(_beats(other, one) for other in candidates))


def _beats(one: Measured, other: Measured) -> bool:
    ours, theirs = (each.sign * each.score.value if each.score else each.fidelity for each in (one, other))
    our_speed, their_speed = one.ranked_speed or 0.0, other.ranked_speed or 0.0
    if their_speed > STEP * our_speed + ROUNDING or ours - theirs < -ROUNDING or one.size > other.size:
        return False
    return our_speed > STEP * their_speed + ROUNDING or ours - theirs > ROUNDING or one.size < other.size


def _check(candidates: Sequence[Measured], value: Value | None) -> None:
    if not candidates:
        raise UserError("There are no candidates to choose from.")
    names = [one.name for one in candidates]
    if len(set(names)) < len(names):
        raise ValueError(f"Two candidates have the same name: {', '.join(sorted(names))}.")
    if any(ratio <= 0 for one in candidates for ratio, _, _ in one.speed.values()):
        raise ValueError("A speed must be above 0.")
    if value is None and any(one.statistics is not None for one in candidates):
        raise ValueError("Scored candidates need the metric's value function.")


def _worse(scored: Sequence[Measured], value: Value) -> dict[str, str]:
    """Those whose paired 95 % interval of the difference to the best-scoring one lies on the wrong side of 0."""
    sign = scored[0].sign
    statistics = {one.name: one.statistics for one in scored if one.statistics is not None}
    scores = {name: sign * float(value(rows.sum(axis=0))) for name, rows in statistics.items()}
    top = max(scored, key=lambda one: (scores[one.name], one.fidelity)).name
    found = {}
    for name, rows in statistics.items():
        drop = paired(statistics[top], rows, value, greater_is_better=sign > 0)
        if drop.low > 0:
            found[name] = _lower(drop, sign > 0)
    return found


def _below(scores: Mapping[str, float]) -> dict[str, str]:
    """Those below the best score, of which no interval tells how certain that is."""
    behind = {name: max(scores.values()) - score for name, score in scores.items()}
    return {name: f"score worse by {less:.3g}" for name, less in behind.items() if less > ROUNDING}


def _faithful(holding: Sequence[Measured], pool: Sequence[Measured]) -> tuple[list[Measured], dict[str, str], bool]:
    """Those within a point of the most faithful, why not the others, and whether none of them holds the score."""
    for among in (pool, holding):
        most = max(one.fidelity for one in among)
        near = [one for one in holding if most - one.fidelity <= FIDELITY + ROUNDING]
        if near:
            break
    behind = {one.name: 100 * (most - one.fidelity) for one in holding if one not in near}
    return near, {name: f"less faithful by {points:.1f} points" for name, points in behind.items()}, among is not pool


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


def _behind(one: Measured, best: Measured, fastest: float | None, prefer: str) -> str:
    """Why an eligible candidate comes after the best."""
    speed = one.ranked_speed
    if prefer == "size" and one.size > best.size:
        return f"larger by {_megabytes(one.size - best.size)}"
    if prefer == "fidelity" and one.fidelity < best.fidelity:
        return f"less faithful by {100 * (best.fidelity - one.fidelity):.1f} points"
    if prefer == "score" and one.score and best.score and one.sign * (best.score.value - one.score.value) > 0:
        return f"score worse by {abs(best.score.value - one.score.value):.3g}"
    if _step(speed, fastest) > _step(best.ranked_speed, fastest):
        if speed is None or fastest is None:
            return "not timed"
        return f"slower by {100 * (fastest / speed - 1):.0f} %"
    if one.size > best.size:
        return f"larger by {_megabytes(one.size - best.size)}"
    if one.logit_change > best.logit_change:
        return f"its logits move more ({one.logit_change:.4f} against {best.logit_change:.4f})"
    return f"equal to {best.name}, which comes first by name"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 50_000 else f"{size:,} bytes"


def _rule(candidates: Sequence[Measured], scored: bool, score_first: bool, of_whole: bool, prefer: str) -> str:
    if len(candidates) == 1:
        return "There is one candidate."
    tests = []
    if scored:
        tests.append("whose score is not below the best one's (the paired 95 % interval of the difference contains 0)")
    if of_whole:
        tests.append("with the best score (one of the whole, without an interval)")
    among = " of these" if score_first else ""
    tests.append(f"whose answers equal the FP32 model's within one point of the most faithful{among}")
    timed = any(one.speed for one in candidates) or prefer != "speed"
    order = ORDERS[prefer] if timed else ORDERS[prefer].removeprefix(FASTEST)
    unscored = "" if scored or of_whole else "Nothing was scored. "
    return f"{unscored}Chosen among the candidates {' and '.join(tests)}: {order}."
