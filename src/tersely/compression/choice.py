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
    """A candidate and what was measured of it. `speed` by batch size; `speedup` at the setting that pruning aims at.

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
        """Statistics of the primary metric [rows, k]; None without labels, and where the metric has none."""
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
        """The speed that decides: `speedup` where it was measured, else the mean over batch sizes."""
        return self.speedup[0] if self.speedup else self.mean_speed

    def is_within(self, max_drop: float | None) -> bool:
        """Whether its score dropped by no more than `max_drop`; True without a limit."""
        drop = self.comparison.drop
        return max_drop is None or (drop is not None and drop.drop <= max_drop + ROUNDING)


@dataclass(frozen=True)
class Choice:
    """The name of the best, all that were eligible (best first), why each other was not chosen, the rule in words."""

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
    """Pick one of the candidates that keep to `max_drop`, or of all where none does. Their order does not matter.

    Fidelity tells candidates of the same weights apart. Of a model that was pruned or trained it says little: its
    answers may differ and be as good. So one is picked for each model, and between models drop and speed decide.
    `value` is the metric's, for candidates with statistics; `bounded`: whether it is a share. `prefer`: what decides
    among those that hold; `limit`: what `max_drop` is called. Costs a paired bootstrap a candidate: 0.01 s (408 rows)
    to 0.5 s (5,000 that all differ).
    """
    _check(candidates, value)
    pool = [measured for measured in candidates if measured.is_within(max_drop)] or list(candidates)
    models: dict[str, list[Measured]] = {}
    for measured in sorted(pool, key=lambda measured: measured.name):
        models.setdefault(measured.candidate.parent.digest, []).append(measured)
    if len(models) == 1 or any(measured.comparison.drop is None for measured in pool):
        chosen = _choose(pool, value, prefer)
    else:
        of_each = [_choose(group, value, prefer) for group in models.values()]
        chosen = _between(of_each, pool, max_drop, prefer, bounded, limit)
    beyond = {measured.name: f"drop above {limit}" for measured in candidates if measured not in pool}
    rule = f"Those whose drop is above {limit} are out. {chosen.rule}" if beyond else chosen.rule
    return Choice(chosen.best, chosen.eligible, {**chosen.reasons, **beyond}, rule)


def _between(
    choices: Sequence[Choice], pool: Sequence[Measured], max_drop: float | None, prefer: str, bounded: bool, limit: str
) -> Choice:
    """Pick one of the best of several models: those whose score fell too far are out, then `prefer` decides."""
    by_name = {measured.name: measured for measured in pool}
    firsts = [by_name[choice.best] for choice in choices]
    out = {measured.name: why for measured in firsts if (why := _fell(measured, max_drop, bounded))}
    left = [measured for measured in firsts if measured.name not in out]
    note = ""
    if not left:  # better the user's own weights, else the least harm
        left = [measured for measured in firsts if not measured.candidate.parent.made_from]
        left = left or [min(firsts, key=lambda measured: (measured.comparison.drop.drop, measured.name))]  # type: ignore[union-attr]
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
    return Choice(ranked[0].name, tuple(measured.name for measured in ranked), dict(sorted(reasons.items())), rule)


def _fell(measured: Measured, max_drop: float | None, bounded: bool) -> str | None:
    """Why a model's score does not hold against FP32's; None where it does.

    Candidates above `max_drop` are out already. Whether few rows could hide a large drop matters only where the weights
    are not the user's own.
    """
    drop = measured.comparison.drop
    if max_drop is not None or drop is None or measured.score is None:
        return None
    limit = LIMIT if bounded else LIMIT * abs(measured.score.value + measured.sign * drop.drop)
    if drop.drop > limit + ROUNDING:
        return f"drop of {_amount(drop.drop, bounded)} above the limit of {_amount(limit, bounded)}"
    if bounded and measured.candidate.parent.made_from and drop.high > REACH + ROUNDING:
        return f"too few rows to tell: its drop may be {_amount(drop.high, bounded)} (more than {100 * REACH:g})"
    return None


def _amount(drop: float, bounded: bool) -> str:
    return f"{100 * drop:.2f} points" if bounded else f"{drop:.3g}"


def _choose(candidates: Sequence[Measured], value: Value | None, prefer: str) -> Choice:
    ordered = sorted(candidates, key=lambda measured: measured.name)
    scored = [measured for measured in ordered if measured.statistics is not None]
    without_interval = {
        measured.name: measured.sign * measured.score.value
        for measured in ordered
        if measured.score and measured.statistics is None
    }
    reasons = {measured.name: "not scored" for measured in ordered if scored and measured.statistics is None}
    if scored and value is not None:
        reasons |= _worse(scored, value)
    if without_interval:
        reasons |= _below(without_interval)
    holding = [measured for measured in ordered if measured.name not in reasons]
    faithful, unfaithful, score_first = _faithful(holding, scored or ordered)
    ranked, behind = _ranked(faithful, prefer)
    reasons |= unfaithful | behind
    return Choice(
        best=ranked[0].name,
        eligible=tuple(measured.name for measured in ranked),
        reasons={measured.name: reasons[measured.name] for measured in ordered if measured.name in reasons},
        rule=_rule(ordered, bool(scored), score_first, bool(without_interval), prefer),
    )


def _ranked(left: Sequence[Measured], prefer: str) -> tuple[list[Measured], dict[str, str]]:
    """The eligible candidates in the order of preference, and why each comes after the first."""
    fastest = max((measured.ranked_speed for measured in left if measured.ranked_speed is not None), default=None)

    def key(measured: Measured) -> tuple[float, ...]:
        score = -measured.sign * measured.score.value if measured.score else 0.0
        firsts = {
            "score": (score,),
            "fidelity": (-measured.fidelity, measured.logit_change),
            "size": (float(measured.size),),
        }
        return (*firsts.get(prefer, ()), _step(measured.ranked_speed, fastest), measured.size, measured.logit_change)

    ranked = sorted(left, key=lambda measured: (key(measured), measured.name))
    return ranked, {measured.name: _behind(measured, ranked[0], fastest, prefer) for measured in ranked[1:]}


def screen(candidates: Sequence[Measured], *, many: int = MANY, finalists: int = FINALISTS) -> tuple[str, ...]:
    """Names of candidates to score on all rows: all, or of many the most faithful and one of each strategy and model.

    Fidelity on 256 rows has few different values; the smaller change of logits comes first among equal ones.
    """
    ranked = sorted(candidates, key=lambda measured: (-measured.fidelity, measured.logit_change, measured.name))
    if len(ranked) <= many:
        return tuple(measured.name for measured in ranked)
    seen: set[tuple[str, str]] = set()
    kept = []
    for place, measured in enumerate(ranked):
        origin = measured.candidate.plan.name, measured.candidate.parent.digest
        if place < finalists or origin not in seen:
            kept.append(measured.name)
        seen.add(origin)
    return tuple(kept)


def pareto(candidates: Sequence[Measured]) -> tuple[str, ...]:
    """Names of candidates for which no other is at least as good in score, speed and size, and better in one of them.

    Without labels fidelity stands for the score. Speeds within a step of 5 % are equal, as where the best is chosen.
    """
    return tuple(measured.name for measured in candidates if not any(_beats(other, measured) for other in candidates))


def _beats(measured: Measured, other: Measured) -> bool:
    ours, theirs = (each.sign * each.score.value if each.score else each.fidelity for each in (measured, other))
    our_speed, their_speed = measured.ranked_speed or 0.0, other.ranked_speed or 0.0
    if their_speed > STEP * our_speed + ROUNDING or ours - theirs < -ROUNDING or measured.size > other.size:
        return False
    return our_speed > STEP * their_speed + ROUNDING or ours - theirs > ROUNDING or measured.size < other.size


def _check(candidates: Sequence[Measured], value: Value | None) -> None:
    if not candidates:
        raise UserError("There are no candidates to choose from.")
    names = [measured.name for measured in candidates]
    if len(set(names)) < len(names):
        raise ValueError(f"Two candidates have the same name: {', '.join(sorted(names))}.")
    if any(ratio <= 0 for measured in candidates for ratio, _, _ in measured.speed.values()):
        raise ValueError("A speed must be above 0.")
    if value is None and any(measured.statistics is not None for measured in candidates):
        raise ValueError("Scored candidates need the metric's value function.")


def _worse(scored: Sequence[Measured], value: Value) -> dict[str, str]:
    """Candidates whose paired 95 % interval of the drop from the best-scoring lies above 0, and their drop in words."""
    sign = scored[0].sign
    statistics = {measured.name: measured.statistics for measured in scored if measured.statistics is not None}
    scores = {name: sign * float(value(rows.sum(axis=0))) for name, rows in statistics.items()}
    top = max(scored, key=lambda measured: (scores[measured.name], measured.fidelity)).name
    found = {}
    for name, rows in statistics.items():
        drop = paired(statistics[top], rows, value, greater_is_better=sign > 0)
        if drop.low > 0:
            found[name] = _lower(drop, sign > 0)
    return found


def _below(scores: Mapping[str, float]) -> dict[str, str]:
    """Candidates below the best score, by a metric that has no interval."""
    behind = {name: max(scores.values()) - score for name, score in scores.items()}
    return {name: f"score worse by {less:.3g}" for name, less in behind.items() if less > ROUNDING}


def _faithful(holding: Sequence[Measured], pool: Sequence[Measured]) -> tuple[list[Measured], dict[str, str], bool]:
    """Those of `holding` within a point of the most faithful, why the others are not, and which that is.

    It is the most faithful of `pool`; where none is near that, of `holding`, and the last is True.
    """
    for among in (pool, holding):
        most = max(measured.fidelity for measured in among)
        near = [measured for measured in holding if most - measured.fidelity <= FIDELITY + ROUNDING]
        if near:
            break
    behind = {measured.name: 100 * (most - measured.fidelity) for measured in holding if measured not in near}
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


def _behind(measured: Measured, best: Measured, fastest: float | None, prefer: str) -> str:
    """Why an eligible candidate comes after the best."""
    speed = measured.ranked_speed
    if prefer == "size" and measured.size > best.size:
        return f"larger by {_megabytes(measured.size - best.size)}"
    if prefer == "fidelity" and measured.fidelity < best.fidelity:
        return f"less faithful by {100 * (best.fidelity - measured.fidelity):.1f} points"
    if (
        prefer == "score"
        and measured.score
        and best.score
        and measured.sign * (best.score.value - measured.score.value) > 0
    ):
        return f"score worse by {abs(best.score.value - measured.score.value):.3g}"
    if _step(speed, fastest) > _step(best.ranked_speed, fastest):
        if speed is None or fastest is None:
            return "not timed"
        return f"slower by {100 * (fastest / speed - 1):.0f} %"
    if measured.size > best.size:
        return f"larger by {_megabytes(measured.size - best.size)}"
    if measured.logit_change > best.logit_change:
        return f"its logits move more ({measured.logit_change:.4f} against {best.logit_change:.4f})"
    return f"equal to {best.name}, which comes first by name"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 50_000 else f"{size:,} bytes"


def _rule(candidates: Sequence[Measured], scored: bool, score_first: bool, without_interval: bool, prefer: str) -> str:
    if len(candidates) == 1:
        return "There is one candidate."
    tests = []
    if scored:
        tests.append("whose score is not below the best one's (the paired 95 % interval of the difference contains 0)")
    if without_interval:
        tests.append("with the best score (one of the whole, without an interval)")
    among = " of these" if score_first else ""
    tests.append(f"whose answers equal the FP32 model's within one point of the most faithful{among}")
    timed = any(measured.speed for measured in candidates) or prefer != "speed"
    order = ORDERS[prefer] if timed else ORDERS[prefer].removeprefix(FASTEST)
    unscored = "" if scored or without_interval else "Nothing was scored. "
    return f"{unscored}Chosen among the candidates {' and '.join(tests)}: {order}."
