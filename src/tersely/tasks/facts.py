"""`Facts`: what is known of a task before there is a model for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

AnswersFor = Literal["row", "tokens", "span", "own"]
"""What a model answers for. A row: logits [rows, labels]; its tokens: [rows, length, labels]; a span: starts and ends,
[rows, length] each; what only its owner knows.
"""


@dataclass(frozen=True)
class Input:
    """A text of every row, by the name that requests have for it.

    `words`: the parameter of a request by which rows come as lists of words in its place.
    """

    name: str
    optional: bool = False
    words: str | None = None


@dataclass(frozen=True)
class Facts:
    """A task's words for those who show it, what it reads, and which models are for it.

    `call` and `gives`: the line of Python that a model card shows, and what it gives. `answers_for`: see there.
    `head`: a class of transformers whose name ends with `For` and this is for the task (None: no class says so).
    `kinds`: what `--task` takes, each with the `problem` that it stands for (None: the task has no such setting).
    `targets`: the names of labels in a model's forward. `inputs`: the texts of a row; `task.examples` takes a row as a
    mapping, as a tuple of its texts, or as its first text where no other is needed. `defaults` fills in settings that
    follow from others. `pipeline_tag`: the Hub's name for the task (None: it has none). `note`: a paragraph for the
    card, filled in with the task's settings. `not_served`: why no server takes it ('': one does).
    """

    call: str
    gives: str
    answers_for: AnswersFor
    head: str | None = None
    kinds: Mapping[str, str | None] = field(default_factory=dict)
    targets: tuple[str, ...] = ("labels",)
    inputs: tuple[Input, ...] = ()
    defaults: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    pipeline_tag: str | None = None
    note: str = ""
    not_served: str = ""
