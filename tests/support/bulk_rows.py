"""Rows for hand-written artifacts, and when two answers to them are the same."""

from __future__ import annotations

import random
from typing import Any

from learnable import WORDS

Record = dict[str, str]


def records(kind: str, count: int) -> list[Record]:
    """Rows of many lengths, as a user's file has them."""
    draw = random.Random(count)  # noqa: S311

    def words(most: int) -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))

    if kind == "question":
        return [{"question": words(6), "context": words(60)} for _ in range(count)]
    return [{"text": words(24)} for _ in range(count)]


def inputs(kind: str, rows: list[Record]) -> list[Any]:
    """The same for `Predictor.predict`."""
    return [(row["question"], row["context"]) if kind == "question" else row["text"] for row in rows]


def near(left: Any, right: Any) -> bool:
    """Equal, numbers to two millionths: batches are cut elsewhere, and sums are taken in another order."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(near(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(near, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right) <= 2e-6 * max(1.0, abs(right))
    return type(left) is type(right) and bool(left == right)
