"""Rows whose answer the best candidate changed, the worst first, and which labels are taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..tasks import Task
from .result import CompressionResult

SHOWN, LONGEST, MOST_LABELS, MOST_WORDS = 20, 280, 30, 12
"""Changed rows to tell of, characters of a text, labels of a matrix that can still be read, words of a sentence."""
VERDICTS = ("worse", "neither", "better")


def changes(result: CompressionResult) -> dict[str, Any]:
    """Count the changed answers and tell of the worst: place, texts, both answers and the gold."""
    task, examples = result.source.task, result.rows.scoring
    before, after = result.fp32.answers.by_row, result.best.answers.by_row
    equal = task.agreement(before, after)
    changed = [int(row) for row in np.flatnonzero(equal[:, 0] < equal[:, 1])]
    told: dict[str, Any] = {"rows": len(examples), "changed": len(changed)}
    gains = None
    if result.rows.labelled and task.metrics[task.metric].has_statistics:
        gains = task.rightness(examples, after) - task.rightness(examples, before)
        told |= {"worse": int((gains[changed] < 0).sum()), "better": int((gains[changed] > 0).sum())}
    worst = changed if gains is None else sorted(changed, key=lambda row: (float(gains[row]), row))
    places = result.rows.places
    shown = []
    for row in worst[:SHOWN]:
        one: dict[str, Any] = {"where": places[row] if places else f"row {row + 1}"}
        one["texts"] = texts(examples[row], before[row])
        one |= answered(task, examples[row], before[row], after[row], labelled=gains is not None)
        if gains is not None:
            one["verdict"] = VERDICTS[int(np.sign(gains[row])) + 1]
        shown.append(one)
    return {**told, "shown": shown}


def confusion(result: CompressionResult) -> dict[str, Any] | None:
    """How often each label (by row) was answered with which (by column); None where that has no meaning."""
    task = result.source.task
    one_label = task.loss == "single_label_classification" and task.metrics[task.metric].has_statistics
    if not (one_label and result.rows.labelled and len(task.labels) <= MOST_LABELS):
        return None
    golds = [example.gold for example in result.rows.scoring]
    both = {"fp32": result.fp32.answers.by_row, "best": result.best.answers.by_row}
    told: dict[str, Any] = {"labels": list(task.labels)}
    for name, answers in both.items():
        counts = np.zeros((len(task.labels), len(task.labels)), int)
        np.add.at(counts, (golds, [answer.value for answer in answers]), 1)
        told[name] = counts.tolist()
    return told


def texts(example: Any, answer: Any = None) -> dict[str, str]:
    """What a row says, by name, cut to a length that can be read; a context around the answer. Ids say nothing."""
    found = {name: getattr(example, name, None) for name in ("text", "text_pair", "question", "context")}
    at = getattr(answer, "start", 0)
    kept = {name: text for name, text in found.items() if isinstance(text, str) and text}
    return {name: cut(text, at if name == "context" else 0) for name, text in kept.items()}


def cut(text: str, at: int = 0, longest: int = LONGEST) -> str:
    """The part of a text around a place, with dots where something is missing.

    >>> cut("one two three", longest=8), cut("one two three", 8, longest=5)
    ('one two…', '…o thr…')
    """
    start = max(0, min(at - longest // 2, len(text) - longest))
    end = start + longest
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"


def answered(task: Task, example: Any, before: Any, after: Any, *, labelled: bool) -> dict[str, Any]:
    """Both answers in words, and the gold where there is one; of tags only those that changed."""
    gold = example.gold if labelled else None
    if hasattr(before, "tags"):
        differ = [i for i, pair in enumerate(zip(before.tags, after.tags, strict=True)) if pair[0] != pair[1]]
        words = getattr(before, "words", None) or [str(i + 1) for i in range(len(before.tags))]
        said = {"fp32": before.tags, "best": after.tags, **({} if gold is None else {"gold": gold})}
        return {name: _tags(words, tags, differ) for name, tags in said.items()}
    told = {"fp32": _said(task, before), "best": _said(task, after)}
    return told if gold is None else {**told, "gold": _gold(task, gold)}


def _tags(words: Sequence[str], tags: Sequence[str], places: Sequence[int]) -> str:
    more = f" and {len(places) - MOST_WORDS} more" if len(places) > MOST_WORDS else ""
    return ", ".join(f"{words[i]} {tags[i]}" for i in places[:MOST_WORDS]) + more


def _said(task: Task, answer: Any) -> str:
    said = str(answer.in_words())
    return said if task.labels else cut(said)  # an answer to a question may be long


def _gold(task: Task, gold: Any) -> str:
    if isinstance(gold, tuple) and hasattr(gold, "_fields"):
        return " to ".join(map(str, gold))
    if not task.labels:  # a question: several golds may be right
        return cut(" / ".join(dict.fromkeys(text for text, _ in gold))) or "no answer"
    return _value(task, gold)


def _value(task: Task, value: Any) -> str:
    """A label, several, or a number."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return ", ".join(name for name, on in zip(task.labels, value, strict=True) if on) or "no label"
    return str(task.labels[value])
