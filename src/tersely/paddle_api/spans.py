"""Answers as spans of pieces, for questions whose texts are not at hand: F1 and exact match over positions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..tasks.metrics import Metric
from ..tasks.metrics.metric import Array, mean, table


class Span(NamedTuple):
    """First and last piece; (0, 0) is no answer in this window."""

    start: int
    end: int


def best_span(logits: NDArray[Any], longest: int) -> Span:
    """The start and end [length, 2] with the largest sum, at most so many pieces long.

    >>> best_span(np.array([[0, 0], [3, 1], [0, 3], [5, 0]]), 2)
    Span(start=1, end=2)
    """
    length = len(logits)
    sums = np.asarray(logits[:, 0], np.float64)[:, None] + np.asarray(logits[:, 1], np.float64)[None, :]
    places = np.arange(length)
    size = places[None, :] - places[:, None]
    sums[(size < 0) | (size >= longest)] = -np.inf
    return Span(*(int(i) for i in np.unravel_index(int(sums.argmax()), sums.shape)))


def _exact(golds: Any, answers: Any) -> Array:
    equal = [float(tuple(gold) == tuple(answer)) for gold, answer in zip(golds, answers, strict=True)]
    return np.stack([np.array(equal), np.ones(len(equal))], axis=1)


def _overlap(golds: Any, answers: Any) -> Array:
    shares = [_f1(Span(*gold), Span(*answer)) for gold, answer in zip(golds, answers, strict=True)]
    return np.stack([np.array(shares), np.ones(len(shares))], axis=1)


def _f1(gold: Span, answer: Span) -> float:
    same = max(0, min(gold.end, answer.end) - max(gold.start, answer.start) + 1)
    return 2 * same / (gold.end - gold.start + answer.end - answer.start + 2)


SPANS = table(Metric("f1", _overlap, mean), Metric("em", _exact, mean))
