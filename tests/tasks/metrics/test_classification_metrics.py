"""Single- and multi-label metrics against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from tersely.errors import UserError
from tersely.tasks.metrics import CLASSIFICATION, MULTI_LABEL

binary = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)
several = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30)
flags = st.lists(st.tuples(*[st.booleans()] * 6), min_size=1, max_size=20)


@settings(deadline=None)
@given(binary)
def test_binary_metrics_equal_sklearn(pairs: list[tuple[int, int]]) -> None:
    golds, answers = np.array(pairs).T
    accuracy, f1 = accuracy_score(golds, answers), f1_score(golds, answers, zero_division=0)
    assert CLASSIFICATION["accuracy"].score(golds, answers) == pytest.approx(accuracy)
    assert CLASSIFICATION["f1"].score(golds, answers) == pytest.approx(f1)
    assert CLASSIFICATION["acc_and_f1"].score(golds, answers) == pytest.approx((accuracy + f1) / 2)


@settings(deadline=None)
@given(several)
def test_multi_class_metrics_equal_sklearn(pairs: list[tuple[int, int]]) -> None:
    golds, answers = np.array(pairs).T
    assert CLASSIFICATION["accuracy"].score(golds, answers) == pytest.approx(accuracy_score(golds, answers))
    macro = f1_score(golds, answers, average="macro", zero_division=0)
    assert CLASSIFICATION["macro_f1"].score(golds, answers) == pytest.approx(macro)
    if len(np.unique(pairs)) > 1:  # sklearn warns about a single label; ours is 0 there too
        assert CLASSIFICATION["mcc"].score(golds, answers) == pytest.approx(matthews_corrcoef(golds, answers))


def test_macro_f1_of_a_resample_leaves_out_classes_not_in_it() -> None:
    golds, answers = np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2])
    statistics = CLASSIFICATION["macro_f1"].rows(golds, answers)
    for drawn in ([0, 0, 1], [3, 3, 3], [2, 2, 0]):
        expected = f1_score(golds[drawn], answers[drawn], average="macro", zero_division=0)
        assert CLASSIFICATION["macro_f1"].value(statistics[drawn].sum(axis=0)) == pytest.approx(expected)


def test_mcc_of_one_class_alone_is_zero() -> None:
    assert CLASSIFICATION["mcc"].score([1, 1, 1], [1, 1, 1]) == 0.0


@pytest.mark.parametrize("name", ["f1", "acc_and_f1"])
def test_f1_of_three_classes_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="Got class 2"):
        CLASSIFICATION[name].rows([0, 1, 2], [0, 1, 1])


@settings(deadline=None)
@given(flags)
def test_multi_label_metrics_equal_sklearn(rows: list[tuple[bool, ...]]) -> None:
    golds, answers = np.array(rows)[:, :3], np.array(rows)[:, 3:]
    for average in ("micro", "macro"):
        expected = f1_score(golds, answers, average=average, zero_division=0)
        assert MULTI_LABEL[f"{average}_f1"].score(golds, answers) == pytest.approx(expected)
        assert MULTI_LABEL[f"{average}_f1"].score(golds.astype(int), answers.astype(int)) == pytest.approx(expected)
    assert MULTI_LABEL["accuracy"].score(golds, answers) == pytest.approx(accuracy_score(golds, answers))
