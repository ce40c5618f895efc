"""Strategy words against every set of steps, written in every way."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tersely.errors import UserError
from tersely.strategy import STEPS, check_rows, parse, parse_all

ORDER = ["prune_embeddings", "prune", "dynabert", "qat", "ptq", "dynamic", "embeddings"]
SETS = [set(chosen) for size in range(1, 8) for chosen in combinations(ORDER, size)]
VALID = [chosen for chosen in SETS if len(chosen & {"qat", "ptq", "dynamic"}) <= 1]
CONTRADICTIONS = [chosen for chosen in SETS if len(chosen & {"qat", "ptq", "dynamic"}) > 1]


def refusal(text: object) -> str:
    with pytest.raises(UserError) as caught:
        parse(text)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("chosen", VALID, ids=lambda chosen: " ".join(sorted(chosen)))
def test_every_order_of_valid_steps_runs_in_the_one_order(chosen: set[str]) -> None:
    expected = tuple(step for step in ORDER if step in chosen)
    for ordered in permutations(chosen):
        plan = parse("+".join(ordered))
        assert (plan.steps, plan.name) == (expected, "+".join(expected))


@given(
    st.sampled_from([sorted(chosen) for chosen in VALID]).flatmap(st.permutations),
    st.lists(st.sampled_from(["+", ",", " ", " + ", ", ", "\t", "  "]), min_size=8, max_size=8),
)
def test_plus_comma_and_blank_all_separate(steps: list[str], separators: list[str]) -> None:
    text = "".join(step + separator for step, separator in zip(steps, separators, strict=False))
    assert set(parse(text).steps) == set(steps)


@pytest.mark.parametrize("chosen", CONTRADICTIONS, ids=lambda chosen: " ".join(sorted(chosen)))
def test_contradictions_name_valid_strategies(chosen: set[str]) -> None:
    message = refusal("+".join(sorted(chosen)))
    neighbours = message.split(": ")[-1].split("strategy ")[1:]
    assert len(neighbours) == len(chosen & {"qat", "ptq", "dynamic"})
    rest = chosen - {"qat", "ptq", "dynamic"}
    assert all(set(parse(neighbour).steps) - {"qat", "ptq", "dynamic"} == rest for neighbour in neighbours)


def test_contradiction_with_a_doubled_word_names_valid_strategies_too() -> None:
    assert "'qat' or 'ptq'" in refusal("ptq+ptq+qat")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "The strategy is empty. Known steps: prune_embeddings, prune, dynabert"),
        (" + , ", "The strategy is empty."),
        ("ptq+ptq", "The strategy 'ptq+ptq' names 'ptq' twice. Write 'ptq'."),
        ("embeddings ptq embeddings", "names 'embeddings' twice. Write 'ptq+embeddings'."),
        ("dynabret+ptq", "The strategy 'dynabret+ptq' has an unknown step 'dynabret'. Did you mean 'dynabert'?"),
        ("PTQ", "unknown step 'PTQ'. Did you mean 'ptq'?"),
        ("xyz", "unknown step 'xyz'. Known: prune_embeddings, prune, dynabert, qat, ptq, dynamic, embeddings."),
        ("ptq-embeddings", "unknown step 'ptq-embeddings'."),
        (None, "A strategy must be a text such as 'ptq+embeddings'. Got None."),
        (["ptq"], "Got ['ptq']."),
    ],
)
def test_bad_strategies_are_refused_in_one_line(text: object, said: str) -> None:
    assert said in refusal(text)


def test_equal_strategies_are_one_and_keep_their_order() -> None:
    plans = parse_all(["ptq,embeddings", "dynamic", "embeddings ptq", "ptq"])
    assert [plan.name for plan in plans] == ["ptq+embeddings", "dynamic", "ptq"]
    assert parse_all("ptq embeddings") == (parse("ptq+embeddings"),)


def test_no_strategy_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="no strategy"):
        parse_all([])


@pytest.mark.parametrize(
    ("text", "quantizer", "embeddings", "needs"),
    [
        ("ptq", "ptq", False, "some rows"),
        ("dynamic+embeddings", "dynamic", True, "nothing"),
        ("embeddings", None, True, "nothing"),
        ("prune_embeddings+dynamic", "dynamic", False, "train rows"),
        ("prune_embeddings+ptq", "ptq", False, "train rows"),
        ("dynabert+ptq+embeddings", "ptq", True, "train and eval rows"),
        ("qat", "qat", False, "train and eval rows"),
    ],
)
def test_plan_says_what_a_pipeline_reads(text: str, quantizer: str | None, embeddings: bool, needs: str) -> None:
    plan = parse(text)
    assert (plan.quantizer, plan.embeddings, plan.needs) == (quantizer, embeddings, needs)


@pytest.mark.parametrize(
    ("text", "train", "evaluation", "said"),
    [
        ("ptq", False, False, "'ptq' needs rows to calibrate on"),
        ("prune_embeddings", False, True, "needs training rows"),
        ("dynabert+ptq", False, True, "needs training rows"),
        ("qat", True, False, "needs eval rows"),
    ],
)
def test_plans_without_their_rows_are_refused(text: str, train: bool, evaluation: bool, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_rows([parse("dynamic"), parse(text)], train=train, evaluation=evaluation)


def test_plans_with_their_rows_pass() -> None:
    check_rows(parse_all(["dynamic", "embeddings"]), train=False, evaluation=False)
    check_rows(parse_all(["ptq"]), train=True, evaluation=False)
    check_rows(parse_all(["ptq"]), train=False, evaluation=True)
    check_rows([parse(" ".join(chosen)) for chosen in VALID], train=True, evaluation=True)


def test_candidates_are_named_as_their_folders() -> None:
    names = {
        parse("ptq").candidate("mse", "4_1"): "mse4_1",
        parse("ptq").candidate("KL", "128"): "KL128",
        parse("embeddings+ptq").candidate("abs_max", "4_None"): "abs_max4_None-embeddings",
        parse("dynamic").candidate(): "dynamic",
        parse("embeddings+dynamic").candidate(): "dynamic-embeddings",
        parse("embeddings").candidate(): "embeddings",
    }
    assert all(name == expected for name, expected in names.items())
    with pytest.raises(ValueError, match="calibrator"):
        parse("ptq").candidate()


def test_another_quantizer_takes_the_place_of_the_first() -> None:
    for chosen in VALID:
        plan = parse(" ".join(chosen))
        if plan.quantizer:
            assert plan.with_quantizer("dynamic") == parse(" ".join(chosen - {plan.quantizer} | {"dynamic"}))
    assert list(STEPS) == ORDER
