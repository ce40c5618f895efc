"""Every strategy on every task, end to end: what comes out loads without torch and answers.

A part of the matrix in which each two choices meet runs always; all of it, on families that take turns, with
`make test-all`. Each task is one call, so that strategies share what they have in common.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

import tersely
from learnable import conll, jsonl, number, pair, question, rows, several, single, squad, tagged, tiny
from models import FAMILIES
from report_page import check_reports
from tersely import runtime
from tersely.strategy import PRUNERS, QUANTIZERS, STEPS, Plan, parse

TRAIN, DEV = 40, 12
TRAINING: dict[str, Any] = {"max_steps": 2, "save_steps": 2, "per_device_train_batch_size": 4}
CHOICES: dict[str, tuple[str, ...]] = {
    **{step: ("", step) for step in PRUNERS},
    "quantizer": ("", *QUANTIZERS),
    "embeddings": ("", "embeddings"),
}
"""What a strategy chooses: to have a step or not, and which of the quantizers."""


@dataclass(frozen=True)
class Kind:
    """A task with rows that its model can be fed, and what to ask of the result."""

    head: str
    make: Callable[[random.Random], dict[str, Any]]
    ask: Any
    write: Callable[..., Path] = jsonl
    file: str = "jsonl"
    labels: tuple[str, ...] = ("bad", "good")
    more: tuple[tuple[str, Any], ...] = ()


TAGS = ("O", "B-LOC", "B-PER", "I-PER")
KINDS = {
    "single": Kind("SequenceClassification", single, "the dark river"),
    "pair": Kind("SequenceClassification", pair, ("the dark river", "grace")),
    "regression": Kind("SequenceClassification", number, "the dark river", labels=("score",)),
    "multi_label": Kind(
        "SequenceClassification", several, "the dark river", labels=("animal", "place", "time"),
        more=(("problem_type", "multi_label_classification"),),
    ),
    "token_classification": Kind("TokenClassification", tagged("IOB2"), ["old", "river", "dog"], conll, "conll", TAGS),
    "question_answering": Kind(
        "QuestionAnswering", question, {"question": "what is the capital", "context": "the old paris"}, squad, "json",
        (),
    ),
}  # fmt: skip
Case = tuple[Plan, str]


def matrix() -> list[Case]:
    """Every strategy that can be asked for, with every task."""
    chosen = ([step for step in steps if step] for steps in product(*CHOICES.values()))
    return [(parse("+".join(steps)), kind) for steps in chosen if steps for kind in KINDS]


def pairs(case: Case) -> set[frozenset[tuple[str, str]]]:
    """Each two of a case's choices, the task among them."""
    plan, kind = case
    made = {name: next((step for step in steps if step in plan.steps), "") for name, steps in CHOICES.items()}
    return {frozenset(two) for two in combinations([*made.items(), ("task", kind)], 2)}


def covering(cases: Sequence[Case]) -> list[Case]:
    """Cases that together hold every pair: the case with the most new pairs is added, again and again."""
    missing, found = set().union(*map(pairs, cases)), []
    while missing:
        # Of equal cases the shorter strategy: steps cost time.
        best = max(cases, key=lambda case: (len(pairs(case) & missing), -len(case[0].steps)))
        found.append(best)
        missing -= pairs(best)
    return found


def test_matrix_has_every_strategy_and_its_part_has_all_pairs() -> None:
    everything, some = matrix(), covering(matrix())
    assert len({plan for plan, _ in everything}) == 2 ** len(PRUNERS) * (1 + len(QUANTIZERS)) * 2 - 1
    assert {step for plan, _ in everything for step in plan.steps} == {*STEPS}
    assert set().union(*map(pairs, some)) == set().union(*map(pairs, everything))
    assert len(some) < len(everything) / 4
    for quantizer, kind in product(QUANTIZERS, KINDS):
        assert any(plan.quantizer == quantizer and other == kind for plan, other in some)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """A model and its files by task and family. Not to be written to."""
    made: dict[tuple[str, str], dict[str, Any]] = {}

    def make(name: str, family: str = "bert") -> dict[str, Any]:
        if (name, family) not in made:
            kind, place = KINDS[name], tmp_path_factory.mktemp("matrix")
            names = {"id2label": dict(enumerate(kind.labels))} if kind.labels else {}
            fields = {"labels": len(kind.labels) or 2, "hidden": 64, **names, **dict(kind.more)}
            found = rows(kind.make, TRAIN + DEV)
            made[name, family] = {
                "model": tiny(place / "model", kind.head, family, **fields),
                "train_file": kind.write(place / f"train.{kind.file}", found[:TRAIN]),
                "eval_file": kind.write(place / f"dev.{kind.file}", found[TRAIN:]),
            }
        return made[name, family]

    return make


def has_widths(plan: Plan) -> bool:
    """Whether `dynabert` makes the shapes; after `prune` it trains those that are there."""
    return "dynabert" in plan.steps and "prune" not in plan.steps


def run(model: dict[str, Any], kind: str, plans: Iterable[Plan], output: Path) -> None:
    """Compress; everything that was asked for is there, loads and answers."""
    plans = tuple(plans)
    steps = {step for plan in plans for step in plan.steps}
    options: dict[str, Any] = {"engines": "onnxruntime"}
    options |= TRAINING if {"dynabert", "qat"} & steps else {}
    options |= {"algo_list": "min_max", "calibration_rows": 8} if {"ptq", "qat"} & steps else {}
    options |= {"importance_rows": 8} if any(has_widths(plan) for plan in plans) else {}
    options |= {"target_speedup": 1.01, "target_length": 12, "target_batch": 2} if "prune" in steps else {}
    result = tersely.compress(**model, output_dir=output, strategy=[plan.name for plan in plans], **options)
    content = json.loads((output / "result.json").read_text())
    check_reports(output)
    widths = {plan: "width_mult_0.75" if has_widths(plan) else "speedup_1.01" for plan in plans}
    names = {plan.candidate("min_max", "8", width=width) for plan, width in widths.items()}
    assert {candidate["name"] for candidate in content["candidates"]} | {*content["same"]} == names
    for candidate in content["candidates"]:
        assert candidate["score"] is not None
        (answer,) = runtime.load(output / candidate["path"]).predict([KINDS[kind].ask])
        assert answer is not None
    (answer,) = runtime.load(result.path).predict([KINDS[kind].ask])
    assert answer is not None


QUICK = ("single", "token_classification", "question_answering")
"""Tasks on which each two choices are tried; on the others all are, at length."""


@pytest.mark.slow
@pytest.mark.usefixtures("short_timings")
@pytest.mark.parametrize("kind", QUICK)
def test_each_two_choices_work_together(kind: str, built: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    plans = [plan for plan, other in covering([pair for pair in matrix() if pair[1] in QUICK]) if other == kind]
    run(built(kind), kind, plans, tmp_path / "out")


@pytest.mark.long
@pytest.mark.parametrize(("kind", "family"), list(zip(KINDS, FAMILIES, strict=False)))
def test_every_strategy_works_on_every_task(
    kind: str, family: str, built: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tersely.compression.choice.MANY", len(matrix()))  # none is written off
    run(built(kind, family), kind, [plan for plan, other in matrix() if other == kind], tmp_path / "out")
