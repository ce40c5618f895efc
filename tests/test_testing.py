"""`check_calibrator` passes what is sound and names the property that a broken one breaks."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from tersely.quantize.calibrators import CALIBRATORS
from tersely.quantize.statistics import Statistics
from tersely.testing import check_calibrator


@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_calibrator_of_the_table_passes(name: str) -> None:
    check_calibrator(CALIBRATORS[name])


@dataclass(frozen=True)
class Made:
    """A calibrator from any function of the statistics."""

    rule: Any
    name: ClassVar[str] = "made"

    def settle(self, statistics: Statistics) -> Any:
        return self.rule(statistics)


def emptied(statistics: Statistics) -> float:
    statistics.histogram.counts[:] = 0
    return statistics.largest


BROKEN = {
    "finite": lambda statistics: float("nan"),
    "from 0 up": lambda statistics: -statistics.largest,
    "at most the largest magnitude": lambda statistics: 2 * statistics.largest,
    "scale with the values": lambda statistics: min(statistics.largest, 6.0),
    "fails on a tensor of NaN alone: ZeroDivisionError": lambda statistics: statistics.largest / statistics.samples,
    "must give a number": lambda statistics: str(statistics.largest),
    "changes the statistics": emptied,
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_rule_is_named(sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_calibrator(Made(BROKEN[sentence]))


def test_a_constant_beside_zero_is_named() -> None:
    with pytest.raises(AssertionError, match=r"at most the largest magnitude, 0\.0\. Got 1e-08 for a tensor of zeros"):
        check_calibrator(Made(lambda statistics: statistics.largest or 1e-8))


def counting(broken_at: str) -> Any:
    """Sound at first; then the n-th look at the normal tensor is answered differently."""
    looks = iter(range(10**6))
    wrong = {"settled before": 1, "order of samples": 2, "order of tokens": 3, "cut into batches": 4}[broken_at]

    def rule(statistics: Statistics) -> float:
        normal = -5 < statistics.low < -2 < 2 < statistics.high < 5 and statistics.finite
        halved = normal and next(looks) == wrong
        return statistics.largest / (2 if halved else 1)

    return rule


@pytest.mark.parametrize("property_", ["settled before", "order of samples", "order of tokens", "cut into batches"])
def test_a_threshold_that_varies_is_named_by_what_it_must_not_depend_on(property_: str) -> None:
    with pytest.raises(AssertionError, match=f"must not depend on .*{property_}"):
        check_calibrator(Made(counting(property_)))


def test_a_calibrator_without_a_name_is_refused() -> None:
    class Nameless:
        def settle(self, statistics: Statistics) -> float:
            return statistics.largest

    with pytest.raises(AssertionError, match="needs a name"):
        check_calibrator(Nameless())  # type: ignore[arg-type]


def test_numpy_numbers_are_numbers() -> None:
    check_calibrator(Made(lambda statistics: np.float32(statistics.largest)))
