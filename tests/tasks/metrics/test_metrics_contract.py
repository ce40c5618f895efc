"""What every metric must keep: statistics that add up, values over any leading axes, its bounds, no warnings."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tersely.tasks import metrics
from tersely.tasks.metrics import Metric

RANDOM = np.random.default_rng(0)
WORDS = ["red", "green fish", "the red fish", "a", "blue"]
HANZI = ["北京大学", "北京", "大学", "上海。", "NBA 总决赛"]


def tags(rows: int) -> list[list[str]]:
    return [list(RANDOM.choice(["O", "B-A", "I-A", "B-B", "I-B"], size=RANDOM.integers(1, 9))) for _ in range(rows)]


def retagged(sequences: list[list[str]]) -> list[list[str]]:
    return [[tag if RANDOM.random() < 0.8 else "O" for tag in sequence] for sequence in sequences]


SEQUENCES = tags(40)
DATA: dict[str, tuple[Mapping[str, Metric], Any, Any]] = {
    "classification": (metrics.CLASSIFICATION, RANDOM.integers(0, 2, 40), RANDOM.integers(0, 2, 40)),
    "multi_label": (metrics.MULTI_LABEL, RANDOM.random((40, 4)) < 0.4, RANDOM.random((40, 4)) < 0.4),
    "regression": (metrics.REGRESSION, RANDOM.normal(size=40), RANDOM.normal(size=40)),
    "entities": (metrics.ENTITIES, SEQUENCES, retagged(SEQUENCES)),
    "squad": (
        metrics.SQUAD,
        [[str(RANDOM.choice(WORDS))] for _ in range(40)],
        [str(w) for w in RANDOM.choice(WORDS, 40)],
    ),
    "cmrc": (
        metrics.CMRC,
        [[str(RANDOM.choice(HANZI))] for _ in range(40)],
        [str(w) for w in RANDOM.choice(HANZI, 40)],
    ),
}
CASES = [
    pytest.param(table[name], golds, answers, id=f"{kind}-{name}")
    for kind, (table, golds, answers) in DATA.items()
    for name in table
]


@pytest.mark.parametrize(("metric", "golds", "answers"), CASES)
def test_value_is_vectorised_over_leading_axes(metric: Metric, golds: Any, answers: Any) -> None:
    statistics = metric.rows(golds, answers)
    assert statistics.shape[0] == 40
    assert statistics.dtype == np.float64
    counts = RANDOM.integers(0, 3, size=(2, 3, 40))
    values = metric.value(counts @ statistics)
    in_turn = [[float(metric.value(counts[i, j] @ statistics)) for j in range(3)] for i in range(2)]
    np.testing.assert_allclose(values, in_turn, atol=1e-12)


@pytest.mark.parametrize(("metric", "golds", "answers"), CASES)
def test_score_stays_within_its_bounds(metric: Metric, golds: Any, answers: Any) -> None:
    assert metric.bounds[0] <= metric.score(golds, answers) <= metric.bounds[1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("metric", "golds", "answers"), CASES)
def test_score_of_no_rows_is_zero(metric: Metric, golds: Any, answers: Any) -> None:
    assert metric.score(golds[:0], answers[:0]) == 0.0


def test_tables_are_keyed_by_metric_names() -> None:
    for table, _, _ in DATA.values():
        assert all(name == metric.name for name, metric in table.items())


def test_public_list_holds_what_exists() -> None:
    assert all(hasattr(metrics, name) for name in metrics.__all__)
