"""CLUE's seven classification tasks: their fields to text, text_pair, label."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..errors import UserError
from .labels import label_text

log = logging.getLogger(__name__)

Record = Mapping[str, Any]
Rule = Callable[[Record, str], Record]
LABEL = "label"
NO_AGREEMENT = "-"  # annotators of ocnli and cmnli did not agree


def agreed(records: Iterable[tuple[int, Record]], rule: Rule, source: str) -> Iterator[tuple[int, Record]]:
    """Apply a rule to every record, but for those whose label is '-'; say how many they were."""
    dropped = kept = 0
    for line, record in records:
        if record.get(LABEL) == NO_AGREEMENT:
            dropped += 1
        else:
            kept += 1
            yield line, rule(record, f"{source}:{line}")
    if dropped:
        log.info("%s: %d rows without an agreed label ('-') left out.", source, dropped)
    if dropped and not kept:
        raise UserError("No rows are left: every label is '-'.", where=source)


def single(record: Record, where: str) -> Record:
    """One text: `sentence`."""
    return {"text": field(record, "sentence", where)} | label(record)


def pair(record: Record, where: str) -> Record:
    """Two texts: `sentence1`, `sentence2`."""
    first, second = field(record, "sentence1", where), field(record, "sentence2", where)
    return {"text": first, "text_pair": second} | label(record)


def keywords(record: Record, where: str) -> Record:
    """Do they fit the abstract? Keywords joined by blanks, then the abstract.

    >>> keywords({"keyword": ["a", "b"], "abst": "c", "label": 1}, "train.json:1")
    {'text': 'a b', 'text_pair': 'c', 'label': '1'}
    """
    words = field(record, "keyword", where)
    if not isinstance(words, list | str):
        raise UserError("The field 'keyword' must be a list.", where=where)
    joined = words if isinstance(words, str) else " ".join(map(str, words))
    return {"text": joined, "text_pair": field(record, "abst", where)} | label(record)


def coreference(record: Record, where: str) -> Record:
    """Does the pronoun mean the noun? The noun is marked _so_, the pronoun [so]."""
    text, target = field(record, "text", where), field(record, "target", where)
    if not isinstance(text, str) or not isinstance(target, Mapping):
        raise UserError("The field 'text' must be a string, 'target' an object.", where=where)
    marks = []
    for span, (left, right) in (("span1", "__"), ("span2", "[]")):
        word, start = field(target, f"{span}_text", where), field(target, f"{span}_index", where)
        sound = isinstance(word, str) and isinstance(start, int) and start >= 0
        if not sound or not text.startswith(word, start):
            raise UserError(f"The text does not hold {span} '{word}' at {start}.", where=where)
        marks.append((start, word, left + word + right))
    for start, word, marked in sorted(marks, reverse=True):  # the later first: the other's offset stays true
        text = text[:start] + marked + text[start + len(word) :]
    return {"text": text} | label(record)


def field(record: Record, name: str, where: str) -> Any:
    """Take a field that the task's records must have."""
    if name not in record:
        raise UserError(f"The field '{name}' is missing. Fields here: {', '.join(record)}.", where=where)
    return record[name]


def label(record: Record) -> dict[str, Any]:
    """Take the label as text; test files have none."""
    return {LABEL: label_text(record[LABEL])} if LABEL in record else {}


RULES: Mapping[str, Rule] = {
    "afqmc": pair,
    "tnews": single,
    "iflytek": single,
    "ocnli": pair,
    "cmnli": pair,
    "cluewsc2020": coreference,
    "csl": keywords,
}
"""Of each task the rule (record, place) -> {"text"[, "text_pair"][, "label"]}."""
