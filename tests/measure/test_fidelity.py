"""Fidelity by its properties: shifts that softmax cannot see do not count, all else does."""

import numpy as np
import pytest

from tersely.measure.score import mean_abs_logit_change, same_answer

RANDOM = np.random.default_rng(0)


def test_same_answer_weighs_rows_by_their_parts() -> None:
    assert same_answer(np.array([[1.0, 1.0], [0.0, 3.0]])) == 0.25


def test_same_answer_of_nothing_is_one() -> None:
    assert same_answer(np.zeros((0, 2))) == 1.0


@pytest.mark.parametrize(("shape", "axis"), [((4,), -1), ((7, 4), -1), ((7, 2), 0)])
def test_logit_change_does_not_see_a_shift_along_its_axis(shape: tuple[int, ...], axis: int) -> None:
    logits = [RANDOM.normal(size=shape).astype(np.float32) for _ in range(3)]
    shift = RANDOM.normal(size=shape).mean(axis=axis, keepdims=True).astype(np.float32)
    assert mean_abs_logit_change(logits, [row + shift for row in logits], axis=axis) == pytest.approx(0.0, abs=1e-6)
    assert mean_abs_logit_change(logits, [row + shift for row in logits], axis=None) > 1e-3


def test_logit_change_equals_centring_both_by_hand() -> None:
    logits = [RANDOM.normal(size=(length, 2)) for length in (3, 5, 8)]
    others = [row + 0.1 * RANDOM.normal(size=row.shape) for row in logits]
    changes = []
    for row, other in zip(logits, others, strict=True):
        for output in range(2):
            changes += list(
                np.abs((row[:, output] - row[:, output].mean()) - (other[:, output] - other[:, output].mean()))
            )
    assert mean_abs_logit_change(logits, others, axis=0) == pytest.approx(np.mean(changes))


def test_logit_change_of_regression_is_the_plain_difference() -> None:
    assert mean_abs_logit_change([np.array([1.0])], [np.array([1.5])], axis=None) == 0.5


def test_logit_change_refuses_features_that_do_not_match() -> None:
    with pytest.raises(ValueError, match="shapes"):
        mean_abs_logit_change([np.ones(3)], [np.ones(1)])
