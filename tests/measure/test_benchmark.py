"""Ratios of times: right for systems whose times are known."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tersely.errors import UserError
from tersely.measure.benchmark import Contestant, alternate, full_batch


def sleeper(name, seconds, calls=None):
    def work():
        if calls is not None:
            calls.append(name)
        time.sleep(seconds)

    return Contestant(name, "sleep", work)


def test_ratio_is_how_many_times_faster_than_the_baseline():
    slow, fast = alternate([sleeper("slow", 0.004), sleeper("fast", 0.002)], "slow sleep", seconds=0.1)
    assert (slow.ratio, slow.spread) == (1.0, (1.0, 1.0))
    assert 1.4 < fast.ratio < 2.3  # a sleep is longer than asked for, and more so on a busy machine
    assert fast.spread[0] <= fast.ratio <= fast.spread[1]
    assert slow.seconds >= 0.004
    assert (fast.model, fast.engine) == ("fast", "sleep")


def test_contestants_take_turns_and_each_begins_as_often():
    calls: list[str] = []
    timings = alternate([sleeper(name, 0, calls) for name in "abc"], "b sleep", seconds=0, rounds=9)
    turns = calls[-27:]
    rounds = [turns[i : i + 3] for i in range(0, 27, 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert [order[0] for order in rounds] == ["a", "b", "c"] * 3
    assert {timing.rounds for timing in timings} == {9}


def test_fast_work_gets_more_rounds_than_asked_for():
    (timing,) = alternate([sleeper("a", 0.001)], "a sleep", seconds=0.05, rounds=2)
    assert 10 < timing.rounds <= 50


def test_unknown_baseline_is_refused_before_work():
    calls: list[str] = []
    with pytest.raises(UserError, match=r"baseline 'x' is not among the contestants: a sleep, b sleep"):
        alternate([sleeper("a", 0, calls), sleeper("b", 0, calls)], "x")
    assert calls == []


@pytest.mark.parametrize("vocab_size", [1, 6, 1000])
def test_full_batch_has_no_padding_and_stays_in_the_vocabulary(vocab_size):
    batch = full_batch(3, 7, vocab_size)
    assert {name: array.shape for name, array in batch.items()} == dict.fromkeys(
        ("input_ids", "attention_mask", "token_type_ids"), (3, 7)
    )
    assert (batch["attention_mask"] == 1).all()
    assert 0 <= batch["input_ids"].min() <= batch["input_ids"].max() < vocab_size
    assert np.array_equal(batch["input_ids"], full_batch(3, 7, vocab_size)["input_ids"])
