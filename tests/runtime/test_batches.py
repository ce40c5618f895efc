"""Cutting, padding and putting back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tersely.runtime.predictor import cut, pad, run
from tersely.tasks import Feature

LENGTHS = st.lists(st.integers(1, 60), max_size=50)


class Echo:
    """An engine whose logits say which row they belong to: its ids, row by row."""

    def __init__(self, per_row: bool = False) -> None:
        self.per_row, self.batches = per_row, []

    def run(self, batch):
        self.batches.append(batch)
        ids = batch["input_ids"].astype(np.float32)
        return (ids[:, :1],) if self.per_row else (ids, -ids)


def features(lengths):
    return [Feature(i, np.full(n, i + 1, np.int64), np.full(n, i % 2, np.int64)) for i, n in enumerate(lengths)]


@given(LENGTHS, st.integers(1, 20), st.integers(1, 200))
def test_batches_hold_every_row_once_and_never_exceed_their_limits(lengths, batch_size, max_batch_tokens):
    batches = list(cut(lengths, batch_size, max_batch_tokens))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[i] for i in batch)
        assert 1 <= len(batch) <= batch_size
        assert padded <= max_batch_tokens or len(batch) == 1


@given(LENGTHS, st.integers(1, 20))
def test_batches_go_from_long_to_short(lengths, batch_size):
    order = [lengths[i] for batch in cut(lengths, batch_size, 10_000) for i in batch]
    assert order == sorted(lengths, reverse=True)


@given(LENGTHS.filter(bool), st.integers(0, 9))
def test_padding_is_masked_and_nothing_else(lengths, pad_id):
    batch = pad(features(lengths), pad_id)
    assert {array.shape for array in batch.values()} == {(len(lengths), max(lengths))}
    for row, length in enumerate(lengths):
        assert (batch["input_ids"][row, :length] == row + 1).all()
        assert (batch["input_ids"][row, length:] == pad_id).all()
        assert (batch["token_type_ids"][row, :length] == row % 2).all()
        assert (batch["token_type_ids"][row, length:] == 0).all()
        assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (max(lengths) - length)


@given(LENGTHS, st.integers(1, 9), st.integers(1, 300))
def test_run_gives_results_in_the_order_given_without_padding(lengths, batch_size, max_batch_tokens):
    done: list[int] = []
    rows = run(
        Echo(), features(lengths), 0, batch_size=batch_size, max_batch_tokens=max_batch_tokens, progress=done.append
    )
    assert [row.shape for row in rows] == [(length, 2) for length in lengths]
    assert all((row == [i + 1, -(i + 1)]).all() for i, row in enumerate(rows))
    assert sum(done) == len(lengths)
    rows = run(Echo(per_row=True), features(lengths), 0, batch_size=batch_size, max_batch_tokens=max_batch_tokens)
    assert [row.tolist() for row in rows] == [[i + 1] for i in range(len(lengths))]


def test_results_do_not_keep_their_padded_batch_alive():
    rows = run(Echo(), features([60, 1]), 0)
    assert [row.base for row in rows] == [None, None]


def test_a_mask_of_some_rows_counts_for_them_alone():
    plain, holed = (Feature(i, np.arange(1, 4 + i), np.zeros(3 + i, np.int64)) for i in range(2))
    holed.more["attention_mask"] = np.array([1, 0, 1, 1])
    for rows in ([plain, holed], [holed, plain]):
        pairs = zip(rows, pad(rows, 0)["attention_mask"].tolist(), strict=True)
        masks = {len(feature): mask for feature, mask in pairs}
        assert masks == {3: [1, 1, 1, 0], 4: [1, 0, 1, 1]}
