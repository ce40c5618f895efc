"""Numbers as the report writes them: scores in points, sizes in megabytes, speeds as multiples of FP32's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .run import FinishedRun


def score(run: FinishedRun, value: float | None) -> str:
    """Points of a metric that is a fraction; any other metric as it is."""
    if value is None or math.isnan(value):
        return ""
    return signless(f"{100 * value:.2f}" if run.fraction else f"{value:.4g}")


def interval(run: FinishedRun, bounds: Sequence[float] | None) -> str:
    """Both ends of an interval."""
    return "" if not bounds else f"{score(run, bounds[0])} to {score(run, bounds[1])}"


def score_within(run: FinishedRun, value: float | None, bounds: Sequence[float] | None) -> str:
    """A score with its interval, if that is known."""
    return f"{score(run, value)} (95 % {interval(run, bounds)})" if bounds else score(run, value)


def signless(text: str) -> str:
    """Zero has no sign, and a minus is one.

    >>> signless("-0.00"), signless("-0.25")
    ('0.00', '−0.25')
    """
    return text.lstrip("-") if not text.strip("-0.") else text.replace("-", "−")


def drop_limit(run: FinishedRun) -> str:
    """How far the score may fall, with its unit; empty where nothing limits it."""
    return "" if run.max_drop is None else f"{score(run, run.max_drop)}{' points' if run.fraction else ''}"


def percent(share: float | None) -> str:
    """A share in percent, without the sign."""
    return "" if share is None or math.isnan(share) else f"{100 * share:.2f}"


def megabytes(size: int) -> str:
    """Bytes as megabytes.

    >>> megabytes(438_012_345), megabytes(35_897)
    ('438.0', '0.04')
    """
    return f"{size / 1e6:.1f}" if size >= 1e6 else f"{size / 1e6:.2f}"


def times(ratio: float | None) -> str:
    """A multiple, without the sign."""
    return "" if ratio is None else f"{ratio:.2f}"


def minutes(value: float) -> str:
    """Minutes, to a tenth.

    >>> minutes(3.14), minutes(0.02)
    ('3.1', '< 0.1')
    """
    return f"{value:.1f}" if value >= 0.05 else "< 0.1"


def small(value: float | None) -> str:
    """A change of logits."""
    return "" if value is None or math.isnan(value) else f"{value:.4f}"


def three_digits(value: float | None) -> str:
    """An end of a range."""
    return "" if value is None else signless(f"{value:.3g}")


def changed_count(was: int, now: int) -> str:
    """A count with its change.

    >>> changed_count(5, 5), changed_count(5, 7), changed_count(0, 0)
    ('5', '7 (+2)', '0')
    """
    return f"{now}" if was == now else f"{now} ({now - was:+d})".replace("-", "−")


def batch(size: str) -> str:
    """What a batch size is called."""
    return f"batch {size}"


def count(number: int, singular: str, plural: str) -> str:
    """A number with its noun.

    >>> count(1, "row", "rows"), count(2, "row", "rows")
    ('1 row', '2 rows')
    """
    return f"{number:,} {singular if number == 1 else plural}"
