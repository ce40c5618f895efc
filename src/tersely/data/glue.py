"""GLUE's nine tasks: their columns to text, text_pair, label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True)
class GlueColumns:
    """Where a task's files keep text, pair and label, and what tells them from others.

    `marks`, with commas: columns that they have. `others`: all further columns that they may have (None: any).
    `values`: what alone stands in a column.
    """

    task: str
    marks: str
    text: str
    text_pair: str | None
    label: str
    others: frozenset[str] | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def canonical(self, record: Record) -> dict[str, Any]:
        """Give text, text_pair (if it is a pair) and label (test files have none)."""
        names = {"text": self.text, "text_pair": self.text_pair, "label": self.label}
        return {name: record[column] for name, column in names.items() if column is not None and column in record}


COLA = GlueColumns(
    "cola",
    "column_1,column_2,column_3,column_4",  # train and dev have no header: source, label, star, sentence
    "column_4",
    None,
    "column_2",
    others=frozenset(),
    values={"column_2": ("0", "1"), "column_3": ("", "*")},
)
# The first that fits is taken: the more telling marks stand above.
KNOWN = (
    GlueColumns("mrpc", "#1 String,#2 String", "#1 String", "#2 String", "Quality"),
    GlueColumns("stsb", "source1,source2,sentence1,sentence2", "sentence1", "sentence2", "score"),
    GlueColumns("stsb", "index,genre,filename,year,sentence1,sentence2", "sentence1", "sentence2", "score"),
    GlueColumns("mnli", "sentence1_parse,sentence1,sentence2", "sentence1", "sentence2", "gold_label"),
    GlueColumns("qqp", "qid1,qid2,question1,question2", "question1", "question2", "is_duplicate"),
    GlueColumns("qqp", "id,question1,question2", "question1", "question2", "is_duplicate"),
    GlueColumns("qnli", "index,question,sentence", "question", "sentence", "label"),
    GlueColumns("rte", "index,sentence1,sentence2", "sentence1", "sentence2", "label"),
    GlueColumns("wnli", "index,sentence1,sentence2", "sentence1", "sentence2", "label"),
    GlueColumns("sst2", "sentence", "sentence", None, "label", others=frozenset({"index", "label"})),
    COLA,
    GlueColumns("cola", "index,sentence", "sentence", None, "label"),
)
TASKS = tuple(dict.fromkeys(known.task for known in KNOWN))
