"""Intervals against a plain bootstrap that draws rows and scores them anew, and by their coverage."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, f1_score

from tersely.errors import UserError
from tersely.measure.intervals import bootstrap, paired
from tersely.tasks.metrics import CLASSIFICATION, REGRESSION, Metric

RANDOM = np.random.default_rng(7)
GOLDS = RANDOM.integers(0, 4, 400)
ANSWERS = np.where(RANDOM.random(400) < 0.8, GOLDS, RANDOM.integers(0, 4, 400))
WORSE = np.where(RANDOM.random(400) < 0.9, ANSWERS, RANDOM.integers(0, 4, 400))
ACCURACY = CLASSIFICATION["accuracy"]


def plain_bootstrap(score: Callable[[Any], float], rows: int, resamples: int = 600) -> tuple[float, float]:
    random = np.random.default_rng(1)
    scores = [score(random.integers(0, rows, rows)) for _ in range(resamples)]
    low, high = np.quantile(scores, [0.025, 0.975])
    return float(low), float(high)


def macro_f1(golds: Any, answers: Any) -> float:
    return float(f1_score(golds, answers, average="macro"))


@pytest.mark.parametrize(
    ("metric", "reference"),
    [(ACCURACY, accuracy_score), (CLASSIFICATION["macro_f1"], macro_f1)],
    ids=["accuracy", "macro"],
)
def test_bootstrap_equals_drawing_rows(metric: Metric, reference: Callable[[Any, Any], float]) -> None:
    expected = plain_bootstrap(lambda drawn: reference(GOLDS[drawn], ANSWERS[drawn]), len(GOLDS))
    got = bootstrap(metric.rows(GOLDS, ANSWERS), metric.value)
    assert got == pytest.approx(expected, abs=0.008)  # an edge of 600 resamples wavers by about 0.002


def test_spearman_interval_from_ranks_taken_once_equals_ranking_anew() -> None:
    golds = RANDOM.normal(size=300)
    answers = golds + RANDOM.normal(size=300)
    metric = REGRESSION["spearman"]
    expected = plain_bootstrap(lambda drawn: float(spearmanr(golds[drawn], answers[drawn]).statistic), 300)
    got = bootstrap(metric.rows(golds, answers), metric.value, bounds=metric.bounds)
    assert got == pytest.approx(expected, abs=0.015)


def test_bootstrap_of_equal_rows_drawn_together_is_that_of_rows_drawn_singly() -> None:
    statistics = ACCURACY.rows(GOLDS, ANSWERS)
    numbered = np.hstack([statistics, np.arange(400.0)[:, None]])  # no two rows are equal
    together, singly = bootstrap(statistics, ACCURACY.value), bootstrap(numbered, ACCURACY.value)
    assert together == pytest.approx(singly, abs=0.006)


def test_bootstrap_covers_the_true_score() -> None:
    rows, truth = 200, 0.85
    covered = 0
    for trial in range(300):
        right = (np.random.default_rng(trial).random(rows) < truth).astype(float)
        low, high = bootstrap(np.stack([right, np.ones(rows)], axis=1), ACCURACY.value, seed=trial, resamples=400)
        covered += low <= truth <= high
    assert 0.90 <= covered / 300 <= 0.98


def test_bootstrap_holds_the_score_and_widens_with_the_level() -> None:
    statistics = ACCURACY.rows(GOLDS, ANSWERS)
    (low, high), (lower, higher) = (bootstrap(statistics, ACCURACY.value, level=level) for level in (0.8, 0.99))
    assert lower < low < ACCURACY.score(GOLDS, ANSWERS) < high < higher


def test_same_seed_gives_the_same_interval() -> None:
    statistics = CLASSIFICATION["macro_f1"].rows(GOLDS, ANSWERS)
    value = CLASSIFICATION["macro_f1"].value
    assert bootstrap(statistics, value, seed=3) == bootstrap(statistics, value, seed=3)
    assert bootstrap(statistics, value, seed=3) != bootstrap(statistics, value, seed=4)


@pytest.mark.parametrize(("right", "expected"), [(1.0, (1 - 3 / 200, 1.0)), (0.0, (0.0, 3 / 200))])
def test_all_right_or_all_wrong_gives_the_rule_of_three(right: float, expected: tuple[float, float]) -> None:
    statistics = np.stack([np.full(200, right), np.ones(200)], axis=1)
    assert bootstrap(statistics, ACCURACY.value) == pytest.approx(expected)


def test_rule_of_three_stays_within_the_bounds() -> None:
    assert bootstrap(np.ones((2, 2)), ACCURACY.value) == (0.0, 1.0)


def test_paired_drop_equals_drawing_rows_of_both() -> None:
    def drop(drawn: Any) -> float:
        return float(accuracy_score(GOLDS[drawn], ANSWERS[drawn]) - accuracy_score(GOLDS[drawn], WORSE[drawn]))

    got = paired(ACCURACY.rows(GOLDS, ANSWERS), ACCURACY.rows(GOLDS, WORSE), ACCURACY.value)
    assert got.drop == pytest.approx(drop(np.arange(400)))
    assert got.drop > 0
    assert (got.low, got.high) == pytest.approx(plain_bootstrap(drop, 400), abs=0.006)


def test_paired_turned_round_has_the_opposite_sign() -> None:
    first, second = ACCURACY.rows(GOLDS, ANSWERS), ACCURACY.rows(GOLDS, WORSE)
    there, back = paired(first, second, ACCURACY.value), paired(second, first, ACCURACY.value)
    assert there.drop == -back.drop
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=0.006)


def test_paired_interval_is_narrower_than_the_unpaired_one() -> None:
    first, second = ACCURACY.rows(GOLDS, ANSWERS), ACCURACY.rows(GOLDS, WORSE)
    difference = paired(first, second, ACCURACY.value)
    widths = [high - low for low, high in (bootstrap(first, ACCURACY.value), bootstrap(second, ACCURACY.value))]
    assert difference.high - difference.low < 0.8 * np.hypot(*widths)


def test_paired_without_change_gives_three_over_rows_both_ways() -> None:
    statistics = ACCURACY.rows(GOLDS, ANSWERS)
    difference = paired(statistics, statistics, ACCURACY.value)
    assert (difference.drop, difference.low, difference.high) == pytest.approx((0.0, -3 / 400, 3 / 400))


def test_paired_takes_statistics_of_different_width() -> None:
    metric = CLASSIFICATION["macro_f1"]
    others = ANSWERS.copy()
    others[:3] = 6  # a class that neither the golds nor the reference have
    difference = paired(metric.rows(GOLDS, ANSWERS), metric.rows(GOLDS, others), metric.value)
    assert difference.drop == pytest.approx(macro_f1(GOLDS, ANSWERS) - macro_f1(GOLDS, others))


def test_paired_drop_of_an_error_is_its_rise() -> None:
    metric = REGRESSION["mse"]
    golds = RANDOM.normal(size=100)
    near, far = metric.rows(golds, golds + 0.1), metric.rows(golds, golds + RANDOM.normal(size=100))
    difference = paired(near, far, metric.value, greater_is_better=metric.greater_is_better)
    assert 0 < difference.low < difference.drop < difference.high


def test_rows_that_do_not_match_or_are_missing_are_refused() -> None:
    with pytest.raises(UserError, match="3 and 2 rows"):
        paired(np.ones((3, 2)), np.ones((2, 2)), ACCURACY.value)
    with pytest.raises(UserError, match="at least one row"):
        bootstrap(np.ones((0, 2)), ACCURACY.value)


def test_bootstrap_of_five_thousand_distinct_rows_takes_less_than_a_second() -> None:
    statistics = np.stack([RANDOM.random(5000), np.ones(5000)], axis=1)
    start = time.process_time()
    bootstrap(statistics, ACCURACY.value)
    assert time.process_time() - start < 1.0
