"""Rows of datasets through a collator: padding removed, inputs named, mistakes refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

from tersely import UserError
from tersely.paddle_api.datasets import BatchForm, TrainerDataset, UnlabelledDataset, as_arrays
from tersely.runtime.predictor import pad
from tersely.tasks.own import feature_of

NAMES = ("input_ids", "attention_mask", "labels")
FORM = BatchForm(("input_ids", "attention_mask"), ("labels",), 0, NAMES)


def data(dataset: Any, batch_size: int = 2, collate: Any = default_collate) -> TrainerDataset:
    return TrainerDataset("eval_dataset", dataset, lambda part: DataLoader(part, batch_size, collate_fn=collate))


def test_padding_is_taken_off_and_put_on_again() -> None:
    ids = torch.tensor([[5, 6, 7, 0], [5, 6, 0, 0], [9, 0, 0, 0]])
    rows = data(TensorDataset(ids, (ids != 0).long(), torch.arange(3))).examples([2, 0, 1], FORM)
    assert [row.inputs["input_ids"].tolist() for row in rows] == [[9], [5, 6, 7], [5, 6]]
    assert [int(row.targets["labels"]) for row in rows] == [2, 0, 1]
    batch = pad([feature_of(i, row.inputs) for i, row in enumerate(rows)], 0)
    assert batch["input_ids"].tolist() == [[9, 0, 0], [5, 6, 7], [5, 6, 0]]
    assert batch["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 0]]


def test_a_mask_is_rebuilt_from_padding_where_rows_have_none() -> None:
    rows = [{"input_ids": [5, 6, 0], "labels": 1}, {"input_ids": [5, 0, 0], "labels": 0}]
    collate = lambda items: {k: torch.tensor([item[k] for item in items]) for k in items[0]}  # noqa: E731
    read = data(rows, collate=collate).examples([0, 1], FORM)
    assert [len(example.inputs["input_ids"]) for example in read] == [2, 1]


def test_holes_of_a_mask_stay_and_padding_in_front_is_a_hole() -> None:
    ids, mask = torch.tensor([[0, 5, 6, 7]]), torch.tensor([[0, 1, 0, 1]])
    (row,) = data(TensorDataset(ids, mask, torch.tensor([1]))).examples([0], FORM)
    batch = pad([feature_of(0, row.inputs)], 0)
    assert batch["attention_mask"].tolist() == [[0, 1, 0, 1]]
    assert batch["input_ids"].tolist() == [[0, 5, 6, 7]]


def test_a_model_without_a_mask_keeps_its_padding() -> None:
    form = BatchForm(("input_ids",), ("labels",), 0, ("input_ids", "labels"), masked=False)
    (row,) = data(TensorDataset(torch.tensor([[5, 6, 0, 0]]), torch.tensor([1]))).examples([0], form)
    assert row.inputs["input_ids"].tolist() == [5, 6, 0, 0]


def test_further_inputs_go_along_and_are_filled_up() -> None:
    form = BatchForm(("input_ids", "position_ids", "kind"), ("labels",), 0, ())
    rows = [
        {"input_ids": [5, 6, 7], "position_ids": [2, 1, 0], "kind": 4, "labels": 0},
        {"input_ids": [5, 0, 0], "position_ids": [9, 0, 0], "kind": 3, "labels": 0},
    ]
    collate = lambda items: {k: np.array([item[k] for item in items]) for k in items[0]}  # noqa: E731
    read = data(rows, collate=collate).examples([0, 1], form)
    batch = pad([feature_of(i, row.inputs) for i, row in enumerate(read)], 0)
    assert batch["position_ids"].tolist() == [[2, 1, 0], [9, 0, 0]]
    assert batch["kind"].tolist() == [4, 3]


def test_labels_of_unlabelled_rows_are_not_read() -> None:
    ids = torch.tensor([[5, 6], [7, 8]])
    load = lambda part: DataLoader(part, 2, collate_fn=default_collate)  # noqa: E731
    for labels in ((torch.arange(2),), ()):
        dataset = UnlabelledDataset("unlabelled_dataset", TensorDataset(ids, torch.ones_like(ids), *labels), load)
        rows = dataset.examples([0, 1], FORM)
        assert [row.inputs["input_ids"].tolist() for row in rows] == ids.tolist()
        assert [dict(row.targets) for row in rows] == [{}, {}]


def test_each_row_is_collated_once() -> None:
    seen = []

    def collate(items: list[Any]) -> Any:
        seen.extend(int(item[2]) for item in items)
        return default_collate(items)

    ids = torch.tensor([[5], [6], [7]])
    rows = data(TensorDataset(ids, torch.ones_like(ids), torch.arange(3)), collate=collate)
    rows.examples([0, 2], FORM)
    rows.examples(range(3), FORM)
    assert sorted(seen) == [0, 1, 2]


def test_rows_of_other_content_are_told_apart_by_their_text() -> None:
    ids = torch.ones(2, 3000, dtype=torch.long)
    ids[1, 1500] = 2
    first, other = data(TensorDataset(ids, torch.ones_like(ids), torch.zeros(2))).examples([0, 1], FORM)
    assert repr(first).split()[-1] != repr(other).split()[-1]


def test_labels_by_their_other_names() -> None:
    assert as_arrays({"input_ids": torch.ones(1, 2), "label": torch.tensor([1])}, (), "x")["labels"].tolist() == [1]


def generator() -> Any:
    yield {"input_ids": [1]}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: data(generator()), "which has no length"),
        (lambda: data([]), "The eval_dataset has no rows."),
        (
            lambda: as_arrays({"text": "a"}, (), "eval_dataset"),
            "Batches must hold 'input_ids' [rows, length]. Got: noth",
        ),
        (lambda: as_arrays(torch.ones(2), (), "x"), "must give a mapping or a tuple of tensors. Got Tensor"),
        (lambda: as_arrays((1, 2, 3), ("a", "b"), "x"), "A row of the x holds 3 tensors"),
        (lambda: data([1], collate=lambda _: 1 / 0).examples([0], FORM), "cannot be collated: ZeroDivisionError"),
        (
            lambda: data([1, 2], collate=lambda items: {"input_ids": torch.ones(1, 2)}).examples([0, 1], FORM),
            "made 1 rows out of 2",
        ),
    ],
)
def test_what_cannot_be_read_is_told(make: Any, said: str) -> None:
    with pytest.raises(UserError) as caught:
        make()
    assert said in str(caught.value)
