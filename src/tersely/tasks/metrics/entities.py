"""Entity metrics, equal to seqeval's default mode. Golds and answers are one tag sequence per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .metric import Array, Metric, f1, mean, ratio, table


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(label, first word, word after the last) of every entity, in IOB1, IOB2, BIOES or BMES; never fails.

    Malformed sequences are read as seqeval reads them: an entity also begins where an `I` or `E` follows nothing
    that it could continue, and ends where the label changes.

    >>> entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    >>> entities(["B-ORG", "M-ORG", "E-ORG", "S-PER"])
    [('ORG', 0, 3), ('PER', 3, 4)]
    """
    found = []
    start, before, label_before = 0, "O", "_"
    for place, (prefix, label) in enumerate([*map(_split, tags), ("O", "_")]):
        if _ends(before, label_before, prefix, label):
            found.append((label_before, start, place))
        if _starts(before, label_before, prefix, label):
            start = place
        before, label_before = prefix, label
    return found


def _split(tag: str) -> tuple[str, str]:
    """`B-PER` to (`B`, `PER`); a bare letter has the label `_`. BMES's `M` is read as the `I` of BIOES."""
    prefix, label = tag[:1] or "O", tag[1:].split("-", 1)[-1] or "_"
    return ("I" if tag == "M" or tag.startswith("M-") else prefix), label


def _ends(before: str, label_before: str, prefix: str, label: str) -> bool:
    """Whether an entity ends between two neighbouring tags."""
    if before in ("E", "S") or (before in ("B", "I") and prefix in ("B", "S", "O")):
        return True
    return before not in ("O", ".") and label != label_before


def _starts(before: str, label_before: str, prefix: str, label: str) -> bool:
    """Whether an entity starts between two neighbouring tags."""
    if prefix in ("B", "S") or (prefix in ("I", "E") and before in ("O", "E", "S")):
        return True
    return prefix not in ("O", ".") and label != label_before


def _counts(golds: Any, answers: Any) -> Array:
    """(true positives, answered, gold) entities per row."""
    rows = [(set(entities(gold)), set(entities(answer))) for gold, answer in zip(golds, answers, strict=True)]
    counts = [(len(gold & answered), len(answered), len(gold)) for gold, answered in rows]
    return np.array(counts, dtype=np.float64).reshape(-1, 3)


def _tags(golds: Any, answers: Any) -> Array:
    """(equal tags, tags) per row."""
    rows = [
        (sum(g == a for g, a in zip(gold, answer, strict=True)), len(gold))
        for gold, answer in zip(golds, answers, strict=True)
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


ENTITIES = table(
    Metric("f1", _counts, f1),
    Metric("precision", _counts, lambda sums: ratio(sums[..., 0], sums[..., 1])),
    Metric("recall", _counts, lambda sums: ratio(sums[..., 0], sums[..., 2])),
    Metric("accuracy", _tags, mean),
)
