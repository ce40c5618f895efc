"""Whether a table begins with the names of its columns, and what they are called if it does not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ..errors import UserError

USUAL = """
text sentence sentence1 sentence2 text_a text_b text1 text2 text_pair premise hypothesis query review comment title
content document body question question1 question2 context answer answers words tokens tags ner_tags label labels
label_desc category class target score sentiment quality gold_label is_duplicate #1_string #2_string id idx index
"""
KNOWN = frozenset(USUAL.split())
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
FEWEST = 8
"""Rows that it takes to doubt the one before them."""
MOST = 1000
"""Different last fields beyond which they are no labels."""


def is_header(fields: Sequence[str]) -> bool:
    """Tell names of columns from data: distinct, none a number, at least one a usual name.

    >>> is_header(["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]), is_header(["a fine film", "1"])
    (True, False)
    """
    names = [field.strip().lower().replace(" ", "_") for field in fields]
    named = [name for name in names if name]
    return (
        len(set(named)) == len(named)
        and not any(NUMBER.fullmatch(name) for name in named)
        and not KNOWN.isdisjoint(named)
    )


def header_names(fields: Sequence[str], where: str) -> tuple[str, ...]:
    """Take a header's fields as names; one left blank is called by its place.

    >>> header_names(["", "text", "label"], "a.csv:1")
    ('column_1', 'text', 'label')
    """
    names = tuple(field.strip() or f"column_{place}" for place, field in enumerate(fields, start=1))
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"The header names the column '{name}' twice.", where=where, hint="Rename one of them.")
    return names


def default_names(width: int) -> tuple[str, ...]:
    """Name the columns of a table without a header.

    >>> default_names(2), default_names(4)
    (('text', 'label'), ('column_1', 'column_2', 'column_3', 'column_4'))
    """
    usual = {1: ("text",), 2: ("text", "label"), 3: ("text", "text_pair", "label")}
    return usual.get(width, tuple(f"column_{place}" for place in range(1, width + 1)))


class Doubt:
    """A first row without any usual name was taken as data, its last field as a label: is that like the others?

    A header in other words, `评论` and `情感`, would else become a row with a label of its own, without a word.
    """

    def __init__(self, fields: Sequence[str], where: str) -> None:
        self.fields, self.where = fields, where
        self.others: Counter[str] = Counter()

    def look_at(self, label: str) -> None:
        """Count the label of another row."""
        if len(self.others) <= MOST:
            self.others[label] += 1

    def settle(self) -> None:
        """Refuse to guess where the first row's label stands in no other row and all others do, or are numbers."""
        label = self.fields[-1]
        if self.others.total() < FEWEST or label in self.others or len(self.others) > MOST:
            return
        numbers = all(NUMBER.fullmatch(other) for other in self.others) and not NUMBER.fullmatch(label)
        if numbers or min(self.others.values()) > 1:
            names = zip(default_names(len(self.fields)), self.fields, strict=True)
            named = " ".join(f"--{name}_column '{field}'" for name, field in names)
            raise UserError(
                f"Does the first line name the columns? Its last field, '{label}', stands in no other row.",
                where=self.where,
                hint=f"If it does: --header true {named}. If it is a row like the others: --header false.",
            )
