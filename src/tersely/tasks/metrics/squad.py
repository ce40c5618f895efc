"""SQuAD's exact match and F1. Golds are lists of right answers, one list per row; answers are strings.

Normalisation and scores are v1.1's; a row without golds asks for the empty answer, as in v2.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from .metric import Array, Metric, counted, mean, table

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower-case, without punctuation, articles and extra blanks.

    >>> normalize_answer("The  Eiffel Tower!")
    'eiffel tower'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact(gold: str, answer: str) -> float:
    """1.0 if both are the same once normalised, else 0.0.

    >>> exact("the Tower", "tower.")
    1.0
    """
    return float(normalize_answer(gold) == normalize_answer(answer))


def overlap(gold: str, answer: str) -> float:
    """F1 of the two bags of words; if one is empty, whether both are.

    >>> overlap("Eiffel Tower", "the tower")
    0.6666666666666666
    """
    gold_words, words = normalize_answer(gold).split(), normalize_answer(answer).split()
    if not gold_words or not words:
        return float(gold_words == words)
    same = sum((Counter(gold_words) & Counter(words)).values())
    return 2 * same / (len(gold_words) + len(words))


def best_of_golds(compare: Callable[[str, str], float]) -> Callable[[Any, Any], Array]:
    """Rows of (best value over the golds, 1). A row without golds has the one gold ''."""

    def rows(golds: Sequence[Sequence[str]], answers: Sequence[str]) -> Array:
        pairs = zip(golds, answers, strict=True)
        return counted([max(compare(gold, answer) for gold in (row or [""])) for row, answer in pairs])

    return rows


SQUAD = table(Metric("f1", best_of_golds(overlap), mean), Metric("em", best_of_golds(exact), mean))
