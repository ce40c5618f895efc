"""Regression metrics against scipy and scikit-learn."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import mean_squared_error

from tersely.tasks.metrics import REGRESSION


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("seed", range(5))
def test_regression_metrics_equal_scipy(seed: int, shift: float) -> None:
    random = np.random.default_rng(seed)
    golds = random.integers(0, 6, 50) + shift  # ties
    answers = (golds + random.normal(size=50)).round(1)
    assert REGRESSION["pearson"].score(golds, answers) == pytest.approx(pearsonr(golds, answers).statistic, abs=1e-9)
    assert REGRESSION["spearman"].score(golds, answers) == pytest.approx(spearmanr(golds, answers).statistic, abs=1e-9)
    assert REGRESSION["mse"].score(golds, answers) == pytest.approx(mean_squared_error(golds, answers))


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlation_with_a_constant_is_zero(name: str) -> None:
    assert REGRESSION[name].score([0.1, 0.2, 0.3], [0.7, 0.7, 0.7]) == 0.0
    assert REGRESSION[name].score([0.1], [0.7]) == 0.0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlation_of_one_row_drawn_over_and_over_is_zero(name: str) -> None:
    random = np.random.default_rng(1)
    statistics = REGRESSION[name].rows(random.normal(size=20), random.normal(size=20))
    assert (REGRESSION[name].value(20 * statistics) == 0.0).all()


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlation_of_a_line_is_one(name: str) -> None:
    x = np.linspace(0, 1, 30)
    assert REGRESSION[name].score(x, 3 * x - 1) == pytest.approx(1.0)
    assert REGRESSION[name].score(x, -x) == pytest.approx(-1.0)


def test_mse_is_better_when_smaller() -> None:
    assert not REGRESSION["mse"].greater_is_better
