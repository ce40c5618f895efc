"""Which run a folder of checkpoints is of: whatever decides the result must tell two runs apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import TrainingArguments

from tersely.models.folder import open_folder
from tersely.tasks import Feature
from tersely.training.checkpoints import digest, fingerprint

LONG = 2000
"""NumPy and torch leave out the middle of what has more than 1000 elements when they show it."""


def feature(middle: int, **more: np.ndarray) -> Feature:
    ids = np.zeros(LONG, np.int64)
    ids[LONG // 2] = middle
    return Feature(0, ids, np.zeros(LONG, np.int64), more=more)


def test_rows_that_differ_in_the_middle_of_a_long_array_are_two_runs(
    model_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = open_folder(model_folder())
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    assert repr(feature(1)) == repr(feature(2))
    first, same, other = (fingerprint(folder.path, folder.task, arguments, [feature(i)]) for i in (1, 1, 2))
    assert (first == same, first == other) == (True, False)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.zeros(LONG, np.float32), np.zeros(LONG, np.float64)),
        (np.zeros((2, LONG)), np.zeros((LONG, 2))),
        (np.array([0.1, 0.2]), np.array([0.1, 0.2 + 1e-12])),
        (feature(1), feature(1, mask=np.zeros(LONG))),
        ({"a": [1, 2]}, {"a": [1], "b": [2]}),
        (["ab", "c"], ["a", "bc"]),
        ([1, [2]], [[1], 2]),
        ([1], ["1"]),
        (np.array(["a", None], object), np.array(["a", "None"], object)),
    ],
)
def test_what_differs_has_another_digest(left: object, right: object) -> None:
    assert digest(left) != digest(right)
    assert digest([left, {"x": right}]) == digest([left, {"x": right}])


def test_the_order_of_a_mapping_does_not_matter() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
