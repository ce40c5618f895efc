"""Batches of rows that are about as long: every row once, little padding, another order each epoch, by the seed."""

from __future__ import annotations

import numpy as np
import pytest

from tersely.training.batches import AlikeLengths

BATCH = 8
LENGTHS = np.random.default_rng(0).geometric(1 / 40, 1003)


def order(seed: int = 0, epoch: int = 0) -> list[int]:
    sampler = AlikeLengths(LENGTHS.tolist(), BATCH, seed)
    sampler.set_epoch(epoch)
    assert len(sampler) == len(LENGTHS)
    return list(sampler)


def padded(rows: list[int]) -> int:
    """Positions that all batches have."""
    batches = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
    return sum(len(batch) * int(LENGTHS[batch].max()) for batch in batches)


def test_every_row_comes_once_and_batches_hold_little_padding() -> None:
    found = order()
    assert sorted(found) == list(range(len(LENGTHS)))
    at_random = np.random.default_rng(1).permutation(len(LENGTHS)).tolist()
    assert padded(at_random) > 2 * LENGTHS.sum()
    assert padded(found) < 1.15 * LENGTHS.sum()


def test_batches_do_not_come_by_length() -> None:
    means = [LENGTHS[order()[first : first + BATCH]].mean() for first in range(0, 1000, BATCH)]
    assert abs(np.corrcoef(range(len(means)), means)[0, 1]) < 0.25
    neighbours = np.corrcoef(means[:-1], means[1:])[0, 1]
    assert abs(neighbours) < 0.25


def test_the_order_hangs_on_seed_and_epoch_alone() -> None:
    assert order(3, 1) == order(3, 1)
    assert order(3, 1) != order(3, 2) != order(4, 2)


@pytest.mark.parametrize("rows", [0, 1, BATCH - 1, BATCH, BATCH + 1])
def test_few_rows(rows: int) -> None:
    assert sorted(AlikeLengths(LENGTHS[:rows].tolist(), BATCH, 0)) == list(range(rows))
