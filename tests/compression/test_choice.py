"""The choice among candidates against a plain one that draws rows itself, and on cases made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tersely.compression.candidate import Candidate
from tersely.compression.choice import Choice, Measured, choose, pareto, screen
from tersely.compression.parents import Parent
from tersely.errors import UserError
from tersely.measure.intervals import Difference
from tersely.measure.score import Answers, Comparison, Score
from tersely.quant_map import QuantMap
from tersely.strategy import parse
from tersely.tasks.metrics import CLASSIFICATION, REGRESSION

ACCURACY = CLASSIFICATION["accuracy"].value
ROWS = 400


def right(share: float, rows: int = ROWS) -> Any:
    """Statistics of a system that answers the first rows right."""
    return np.stack([np.arange(rows) < round(share * rows), np.ones(rows)], axis=1).astype(float)


def made(
    name: str,
    *,
    size: int = 20_000_000,
    fidelity: float = 0.98,
    speed: float | None = 1.5,
    logit_change: float = 0.0,
    statistics: Any = None,
    score: float | None = None,
    drop: float | None = None,
    strategy: str = "ptq",
    model: str = "",
    sign: int = 1,
) -> Measured:
    """A candidate of which only what choosing looks at is known. `model`: the digest of what it was made of."""
    nothing: Any = None
    candidate = Candidate(name, parse(strategy), Parent("model", nothing, nothing, nothing, model), QuantMap())
    answers, scored = Answers(0, 0.0, [], []), None
    if score is not None or statistics is not None:
        value = float(ACCURACY(statistics.sum(axis=0))) if score is None else score
        scored = Score("share", value, None, {"share": value}, answers, statistics)
    compared = Comparison(None if drop is None else Difference(drop), fidelity, logit_change)
    speeds = {} if speed is None else {1: (speed, speed, speed)}
    return Measured(candidate, "onnxruntime", answers, scored, compared, size, False, speeds, sign=sign)


def chosen(*candidates: Measured) -> Choice:
    return choose(candidates, ACCURACY)


def plain_choice(candidates: Sequence[Measured]) -> tuple[str, set[str]] | None:
    """The rule word for word, with rows drawn and averaged anew; None where an interval's edge is too near 0."""
    random = np.random.default_rng(11)
    answers = {measured.name: measured.statistics[:, 0] for measured in candidates if measured.statistics is not None}
    faithful = {measured.name: measured.fidelity for measured in candidates}
    top = sorted(answers, key=lambda name: (-answers[name].mean(), -faithful[name], name))[0]
    holding = []
    for name, rows in answers.items():
        change = answers[top] - rows
        low = float(np.quantile(change[random.integers(0, ROWS, (800, ROWS))].mean(axis=1), 0.025))
        if change.any() and abs(low) < 0.004:
            return None
        if low <= 0 or not change.any():
            holding.append(name)
    limit = max(faithful.values()) - 0.0100001
    eligible = {name for name in holding if faithful[name] >= limit}
    if not eligible:
        limit = max(faithful[name] for name in holding) - 0.0100001
        eligible = {name for name in holding if faithful[name] >= limit}
    rest = [measured for measured in candidates if measured.name in eligible]
    fastest = max(measured.speed[1][0] for measured in rest)
    first = [measured for measured in rest if fastest / measured.speed[1][0] < 1.05]
    smallest = min(measured.size for measured in first)
    return min(measured.name for measured in first if measured.size == smallest), eligible


def test_choice_equals_the_plain_rule() -> None:
    random = np.random.default_rng(5)
    compared, narrowed = 0, 0
    for _ in range(60):
        base = random.random(ROWS) < 0.85
        candidates = []
        for i in range(random.integers(1, 6)):
            flipped = random.random(ROWS) < random.choice([0.0, 0.02, 0.15])
            correct = np.where(flipped, random.random(ROWS) < 0.5, base)
            candidates.append(
                made(
                    f"c{i}",
                    statistics=np.stack([correct, np.ones(ROWS)], axis=1).astype(float),
                    fidelity=float(random.choice([0.96, 0.97, 0.98, 0.985])),
                    speed=float(random.choice([1.0, 1.04, 1.06, 1.3])),
                    size=int(random.choice([10, 20])),
                )
            )
        expected = plain_choice(candidates)
        if expected is None:
            continue
        compared += 1
        got = chosen(*candidates)
        assert (got.best, set(got.eligible)) == expected
        narrowed += len(got.eligible) < len(candidates)
        assert set(got.reasons) == {measured.name for measured in candidates} - {got.best}
        shuffled = [candidates[i] for i in random.permutation(len(candidates))]
        assert chosen(*shuffled) == got
    assert compared > 25
    assert narrowed > 10


def test_one_candidate_is_the_best_whatever_it_is() -> None:
    for measured in (made("a"), made("a", statistics=right(0.0), fidelity=0.1), made("a", speed=None)):
        assert chosen(measured) == Choice("a", ("a",), {}, "There is one candidate.")


def test_score_that_fell_beyond_its_interval_loses_though_faster() -> None:
    got = chosen(made("slow", statistics=right(0.85)), made("fast", statistics=right(0.80), speed=3.0))
    assert (got.best, got.eligible) == ("slow", ("slow",))
    assert got.reasons["fast"].startswith("score lower by 5.0 points (")


def test_score_that_fell_within_its_interval_wins_by_speed() -> None:
    statistics = right(0.85)
    statistics[0, 0] = 0  # 1 of 400: the interval of 0.25 points reaches 0
    got = chosen(made("slow", statistics=right(0.85)), made("fast", statistics=statistics, speed=3.0))
    assert (got.best, got.eligible) == ("fast", ("fast", "slow"))
    assert got.reasons["slow"] == "slower by 100 %"


def test_higher_error_loses_where_errors_are_scored() -> None:
    golds = np.random.default_rng(0).normal(size=300)
    mse = REGRESSION["mse"]
    near, far = (mse.rows(golds, golds + shift) for shift in (0.1, 0.5))
    pair = [made("far", statistics=far, speed=9.0, sign=-1), made("near", statistics=near, sign=-1)]
    got = choose(pair, mse.value)
    assert got.best == "near"
    assert got.reasons["far"].startswith("error higher by 0.24")


@pytest.mark.parametrize(("fidelity", "best"), [(0.98, "fast"), (0.9799, "slow")])
def test_one_point_of_fidelity_is_forgiven_and_no_more(fidelity: float, best: str) -> None:
    got = choose([made("slow", fidelity=0.99), made("fast", fidelity=fidelity, speed=2.0)])
    assert got.best == best


def test_less_faithful_says_by_how_much() -> None:
    got = choose([made("a", fidelity=0.99), made("b", fidelity=0.969, speed=4.0)])
    assert got.reasons == {"b": "less faithful by 2.1 points"}


def test_score_goes_first_where_the_most_faithful_lost_score() -> None:
    got = chosen(
        made("scores", statistics=right(0.85), fidelity=0.93),
        made("as well", statistics=right(0.85), fidelity=0.91, speed=5.0),
        made("faithful", statistics=right(0.70), fidelity=0.99),
    )
    assert (got.best, got.eligible) == ("scores", ("scores",))
    assert got.reasons["as well"] == "less faithful by 2.0 points"
    assert "score lower" in got.reasons["faithful"]
    assert "most faithful of these" in got.rule


@pytest.mark.parametrize(("speed", "best"), [(1.5 * 1.049, "small"), (1.5 * 1.05, "fast"), (2.0, "fast")])
def test_five_percent_of_speed_is_a_step(speed: float, best: str) -> None:
    got = choose([made("small", size=10), made("fast", speed=speed)])
    assert got.best == best


def test_speeds_within_a_step_of_the_fastest_are_equal_however_they_chain() -> None:
    got = choose([made("a", speed=2.0, size=30), made("b", speed=1.95, size=20), made("c", speed=1.9, size=10)])
    assert got.eligible == ("b", "a", "c")  # c is within a step of b but not of a, the fastest
    assert got.reasons == {"a": "larger by 10 bytes", "c": "slower by 5 %"}


def test_size_then_name_decide_among_equals() -> None:
    got = choose([made("b"), made("a"), made("big", size=23_100_000)])
    assert got.eligible == ("a", "b", "big")
    assert got.reasons == {"b": "equal to a, which comes first by name", "big": "larger by 3.1 MB"}


def test_what_was_not_timed_comes_after_what_was() -> None:
    got = choose([made("timed", speed=0.5), made("not", speed=None, size=1)])
    assert (got.best, got.reasons["not"]) == ("timed", "not timed")
    assert choose([made("a", speed=None), made("b", speed=None, size=1)]).best == "b"


def test_what_was_not_scored_is_not_chosen_where_others_were() -> None:
    scored, unscored = made("scored", statistics=right(0.5), fidelity=0.9), made("left out", speed=9.0, fidelity=1.0)
    got = chosen(scored, unscored)
    assert (got.best, got.reasons) == ("scored", {"left out": "not scored"})


def test_rule_names_only_what_decided() -> None:
    scored = chosen(made("a", statistics=right(0.8)), made("b", statistics=right(0.8)))
    assert all(word in scored.rule for word in ("paired 95 %", "one point", "5 %", "smallest", "name"))
    unscored = choose([made("a"), made("b")])
    assert "95 %" not in unscored.rule
    assert unscored.rule.startswith("Nothing was scored. Chosen among the candidates whose answers")
    untimed = choose([made("a", speed=None), made("b", speed=None)])
    order = "the smallest, then the one whose logits move least, then the first by name"
    assert untimed.rule.endswith(f"within one point of the most faithful: {order}.")


def test_nonsense_is_refused() -> None:
    with pytest.raises(UserError, match="no candidates"):
        choose([])
    with pytest.raises(ValueError, match="same name"):
        choose([made("a"), made("a")])
    with pytest.raises(ValueError, match="value function"):
        choose([made("a", statistics=right(0.5))])
    with pytest.raises(ValueError, match="above 0"):
        choose([made("a", speed=0.0)])


def test_few_candidates_are_all_finalists() -> None:
    few = [made(f"c{i}", fidelity=0.5 + i / 100) for i in range(6)]
    assert set(screen(few)) == {measured.name for measured in few}


def test_of_many_the_most_faithful_and_the_best_of_each_strategy_stay() -> None:
    random = np.random.default_rng(3)
    strategies = ["ptq", "ptq+embeddings", "dynamic"]
    many = [
        made(
            f"c{i}",
            strategy=strategies[i % 3],
            fidelity=float(random.integers(240, 257)) / 256,
            logit_change=float(random.random()),
        )
        for i in range(30)
    ]
    kept = screen(many)
    by_rank = {measured.name: (measured.fidelity, -measured.logit_change) for measured in many}
    top = sorted(many, key=lambda measured: by_rank[measured.name], reverse=True)
    assert {measured.name for measured in top[:4]} <= set(kept)
    for strategy in strategies:
        own = [measured for measured in many if measured.candidate.plan.name == strategy]
        assert max(own, key=lambda measured: by_rank[measured.name]).name in kept
    assert len(kept) <= 6
    assert screen(many[::-1]) == kept


def test_equal_fidelity_is_told_apart_by_logits() -> None:
    same = [made(f"c{i}", fidelity=1.0, logit_change=10.0 - i) for i in range(8)]
    assert screen(same) == ("c7", "c6", "c5", "c4")


def test_of_each_model_one_is_screened_in() -> None:
    close = [made(f"mse{rows}", fidelity=0.9 + rows / 1000) for rows in (4, 8, 16, 32, 64)]
    others = [made("KL4", fidelity=0.8), made("dynamic", strategy="dynamic", fidelity=0.85)]
    assert screen([*close, *others]) == ("mse64", "mse32", "mse16", "mse8", "dynamic")
    assert screen([*close, *others, made("pruned", model="another", fidelity=0.1)])[-1] == "pruned"


def test_the_best_score_of_the_whole_wins_and_among_equals_the_rest_decides():
    slow, fast = made("slow", size=10, score=0.8, speed=1.0), made("fast", size=10, score=0.8, speed=2.0)
    chosen = choose([slow, fast, made("worse", size=1, speed=9.0, score=0.79)])
    assert chosen.best == "fast"
    assert chosen.reasons == {"slow": "slower by 100 %", "worse": "score worse by 0.01"}
    assert "with the best score (one of the whole, without an interval)" in chosen.rule
    assert "Nothing was scored" not in chosen.rule


def test_smaller_is_better_where_errors_are_scored_of_the_whole() -> None:
    got = choose([made("near", score=0.1, sign=-1), made("far", score=0.2, sign=-1, speed=9.0)])
    assert (got.best, got.reasons) == ("near", {"far": "score worse by 0.1"})


def test_what_drops_too_far_is_out_unless_all_do() -> None:
    kept, beyond = made("kept", drop=0.01), made("beyond", drop=0.02, speed=9.0)
    got = choose([kept, beyond], max_drop=0.01)
    assert (got.best, got.reasons) == ("kept", {"beyond": "drop above --max_drop"})
    assert got.rule == "Those whose drop is above --max_drop are out. There is one candidate."
    got = choose([kept, beyond], max_drop=0.001)
    assert (got.best, got.reasons) == ("beyond", {"kept": "slower by 500 %"})
    assert not made("without labels").is_within(0.01)


def test_front_holds_what_no_other_beats() -> None:
    slow, fast = made("slow", score=0.9, speed=1.0, size=20), made("fast", score=0.9, speed=2.0, size=20)
    small = made("small", score=0.8, speed=1.5, size=10)
    assert pareto([slow, fast, small]) == ("fast", "small")
    step = made("a step", score=0.9, speed=2.0 * 1.05, size=20)  # timings do not tell the two apart
    assert pareto([fast, step]) == ("fast", "a step")
    unscored = made("unscored", fidelity=0.9, size=20), made("more faithful", fidelity=0.91, size=20)
    assert pareto(unscored) == ("more faithful",)
    errors = made("near", score=0.1, sign=-1), made("far", score=0.2, sign=-1)
    assert pareto(errors) == ("near",)
