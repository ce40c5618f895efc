"""Which rows go together: never worse than any other way to cut the sorted rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tersely.serve.batching import next_batch, rounded

SIZES = (1, 2, 4, 8, 16)


def cost(batches, lengths, overhead):
    return sum(overhead + len(batch) * max(lengths[i] for i in batch) for batch in batches)


def cheapest(lengths, overhead, max_tokens, allowed):
    """Try every way to cut the sorted rows."""
    order = sorted(lengths)
    best = float("inf")
    for sizes in itertools.product(allowed, repeat=len(order)):
        ends = list(itertools.accumulate(sizes))
        if len(order) not in ends:
            continue
        parts = sizes[: ends.index(len(order)) + 1]
        starts = [0, *itertools.accumulate(parts)][:-1]
        groups = [order[start : start + size] for start, size in zip(starts, parts, strict=True)]
        if all(len(group) == 1 or len(group) * group[-1] <= max_tokens for group in groups):
            best = min(best, sum(overhead + len(group) * group[-1] for group in groups))
    return best


@pytest.mark.parametrize("overhead", [0, 32, 500])
@pytest.mark.parametrize("max_tokens", [100, 16_384])
@pytest.mark.parametrize("sizes", [SIZES, range(1, 7)])
def test_batches_cost_as_little_as_can_be(overhead, max_tokens, sizes):
    draw = np.random.default_rng(3)
    for count in (1, 2, 3, 5, 6):
        lengths = [int(n) for n in draw.choice([16, 32, 64, 96], count)]
        batches = {tuple(next_batch(lengths, first, max_tokens, overhead, sizes)) for first in range(count)}
        assert sorted(itertools.chain(*batches)) == list(range(count))  # each row in one batch, whoever asks
        assert cost(batches, lengths, overhead) == cheapest(lengths, overhead, max_tokens, sizes)


def test_sizes_are_few():
    draw = np.random.default_rng(0)
    lengths = [int(n) for n in draw.integers(5, 128, 64)]
    assert {len(next_batch(lengths, first, 16_384, 32, SIZES)) for first in range(64)} <= set(SIZES)


def test_lengths_are_few_and_never_cut():
    found = {rounded(length, 16) for length in range(1, 513)}
    assert len(found) <= 32
    assert all(rounded(length, 16) >= length for length in range(1, 513))
    assert [rounded(length) for length in (1, 7, 300)] == [1, 7, 300]
