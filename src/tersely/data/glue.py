"""GLUE's nine layouts: their columns to text, text_pair, label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UserError

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """Where a task's files keep text, pair and label; `marks` are the columns that tell it from others."""

    task: str
    marks: frozenset[str]
    text: str
    text_pair: str | None
    label: str

    def canonical(self, record: Record) -> dict[str, Any]:
        """Give text, text_pair (if it is a pair) and label (test files have none)."""
        names = {"text": self.text, "text_pair": self.text_pair, "label": self.label}
        return {name: record[column] for name, column in names.items() if column is not None and column in record}


def recognise(record: Record, task: str | None = None) -> Layout | None:
    """Find the layout of a file from its first record; `task` narrows the choice.

    >>> recognise({"index": "0", "question": "Who?", "sentence": "He.", "label": "entailment"}).task
    'qnli'
    """
    for layout in LAYOUTS:
        if task in (None, layout.task) and fits(layout, record):
            return layout
    return None


def fits(layout: Layout, record: Record) -> bool:
    """Hold a record against a layout."""
    columns = record.keys()
    if layout is COLA:  # train and dev have no header: source, label, star, sentence
        return layout.marks == columns and record["column_2"] in ("0", "1") and record["column_3"] in ("", "*")
    if layout.marks == {"sentence"}:  # too common a name to go by alone
        return "sentence" in columns <= {"index", "sentence", "label"}
    return layout.marks <= columns


def unlike(task: str, columns: Iterable[str], source: str) -> UserError:
    """Say that a file is not laid out as its task's files are."""
    return UserError(
        f"The columns are not those of GLUE's {task}. Columns here: {', '.join(columns)}.",
        where=source,
        hint="Check the folder, or name the columns yourself.",
    )


def layout(task: str, marks: str, text: str, text_pair: str | None, label: str) -> Layout:
    """Write a layout down in one line; marks are separated by commas."""
    return Layout(task, frozenset(marks.split(",")), text, text_pair, label)


COLA = layout("cola", "column_1,column_2,column_3,column_4", "column_4", None, "column_2")
# The first that fits is taken: the more telling marks stand above.
LAYOUTS = (
    layout("mrpc", "#1 String,#2 String", "#1 String", "#2 String", "Quality"),
    layout("stsb", "source1,source2,sentence1,sentence2", "sentence1", "sentence2", "score"),
    layout("stsb", "index,genre,filename,year,sentence1,sentence2", "sentence1", "sentence2", "score"),
    layout("mnli", "sentence1_parse,sentence1,sentence2", "sentence1", "sentence2", "gold_label"),
    layout("qqp", "qid1,qid2,question1,question2", "question1", "question2", "is_duplicate"),
    layout("qqp", "id,question1,question2", "question1", "question2", "is_duplicate"),
    layout("qnli", "index,question,sentence", "question", "sentence", "label"),
    layout("rte", "index,sentence1,sentence2", "sentence1", "sentence2", "label"),
    layout("wnli", "index,sentence1,sentence2", "sentence1", "sentence2", "label"),
    layout("sst2", "sentence", "sentence", None, "label"),
    COLA,
    layout("cola", "index,sentence", "sentence", None, "label"),
)
TASKS = tuple(dict.fromkeys(one.task for one in LAYOUTS))
