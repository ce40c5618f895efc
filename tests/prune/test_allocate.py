"""The allocation of a time budget, against all combinations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tersely.errors import UserError
from tersely.prune.allocate import BINS, Levels, allocate


def draw_levels(seed: int, count: int, levels: int) -> list[Levels]:
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        seconds = np.sort(generator.integers(0, 40, levels)) / 10.0
        harm = np.sort(generator.random(levels))[::-1].copy()
        found.append(Levels(tuple(range(levels)), seconds, harm))
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 4), st.floats(0.3, 1.2))
def test_no_combination_within_the_budget_does_less_harm(seed, count, levels, share):
    sublayers = draw_levels(seed, count, levels)
    budget = share * sum(float(sublayer.seconds.max()) for sublayer in sublayers) + 0.05
    ways = list(product(range(levels), repeat=count))
    seconds = np.array([sum(sublayer.seconds[i] for sublayer, i in zip(sublayers, way, strict=True)) for way in ways])
    harm = np.array([sum(sublayer.harm[i] for sublayer, i in zip(sublayers, way, strict=True)) for way in ways])
    slack = count * budget / BINS  # what rounding to bins may add
    if seconds.min() > budget:
        with pytest.raises(UserError, match="at least"):
            allocate(sublayers, budget)
        return
    kept = allocate(sublayers, budget)
    own = ways.index(tuple(kept))
    assert seconds[own] <= budget + slack
    strict = harm[seconds <= budget - slack]
    assert not len(strict) or harm[own] <= strict.min() + 1e-9


def test_time_that_saves_no_harm_is_not_spent():
    free = Levels((0, 64), np.array([0.0, 1.0]), np.array([0.0, 0.0]))
    assert allocate([free, free], budget=5.0) == [0, 0]
