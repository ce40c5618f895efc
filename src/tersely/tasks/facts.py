"""`Facts`: what is known of a task before there is a model for it."""

from __future__ import annotations

from dataclasses import dataclass


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
    """A task's words for those who show it, and what it reads.

    `call` and `gives`: the line of Python that a model card shows, and what it gives. `inputs`: the texts of a row;
    `task.examples` takes them as a mapping. `pipeline_tag`: the Hub's name for the task (None: it has none). `note`: a
    paragraph for the card, filled in with the task's settings. `not_served`: why no server takes it ('': one does).
    """

    call: str
    gives: str
    inputs: tuple[Input, ...] = ()
    pipeline_tag: str | None = None
    note: str = ""
    not_served: str = ""
