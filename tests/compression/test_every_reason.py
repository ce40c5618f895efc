"""Every candidate that is not the best has a reason, whatever its model, its drop and what is preferred."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tersely.compression.candidate import Candidate
from tersely.compression.choice import ORDERS, Measured, choose
from tersely.compression.parents import Parent
from tersely.measure.intervals import Difference
from tersely.measure.score import Answers, Comparison, Score
from tersely.quant_map import QuantMap
from tersely.strategy import parse
from tersely.tasks.metrics import CLASSIFICATION

ACCURACY = CLASSIFICATION["accuracy"].value
ROWS = 200


def drawn(random: np.random.Generator, name: str, model: str, *, scored: bool) -> Measured:
    """A candidate of a model with figures that are drawn; the user's own model is "own"."""
    nothing: Any = None
    parent = Parent("model", nothing, nothing, nothing, model, () if model == "own" else ("own",))
    candidate = Candidate(name, parse("ptq" if model == "own" else "prune+ptq"), parent, QuantMap())
    answers, drop = Answers(0, 0.0, [], []), float(random.choice([-0.01, 0.0, 0.004, 0.008, 0.03]))
    score, difference = None, None
    if scored:
        rows = np.stack([random.random(ROWS) < 0.85 - drop, np.ones(ROWS)], axis=1).astype(float)
        value = float(ACCURACY(rows.sum(axis=0)))
        score = Score("accuracy", value, None, {"accuracy": value}, answers, rows)
        difference = Difference(drop, drop - 0.01, drop + float(random.choice([0.002, 0.03])))
    compared = Comparison(difference, float(random.choice([0.9, 0.97, 0.975])), float(random.random()))
    speed, size = float(random.choice([2.0, 2.05, 3.0])), int(random.choice([10, 20]))
    ratio = (speed, speed, speed)
    return Measured(candidate, "onnxruntime", answers, score, compared, size, speed={1: ratio}, speedup=ratio)


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("prefer", ORDERS)
def test_every_other_candidate_has_a_reason(prefer: str, scored: bool) -> None:
    random = np.random.default_rng(3)
    models = 0
    for _ in range(12):
        names = [f"c{i}" for i in range(random.integers(2, 7))]
        candidates = [drawn(random, name, str(random.choice(["own", "a", "b"])), scored=scored) for name in names]
        models += len({measured.candidate.parent.digest for measured in candidates}) > 1
        for limit, bounded in ((None, True), (None, False), *([(0.005, True), (-0.5, True)] if scored else [])):
            found = choose(candidates, ACCURACY, limit, prefer=prefer, bounded=bounded)
            assert set(found.reasons) == set(names) - {found.best}
            assert all(found.reasons.values())
    assert models > 6
