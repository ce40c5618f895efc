"""Questions whose texts are at hand beside their tokenized windows: SQuAD's own score, over answers as strings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..tasks import Feature
from ..tasks.own import feature_of
from .live_rows import Form, LiveData, LiveExample

Window = tuple[LiveExample, int, NDArray[np.int64]]
"""A row of the dataset, the first piece of its context, and the characters [pieces, 2] of the pieces from there on."""


@dataclass(frozen=True, eq=False)
class LiveQuestion(LiveExample):
    """A question with the windows over its context; `gold`: its answers as (text, first character)."""

    context: str = ""
    windows: tuple[Window, ...] = field(repr=False, default=())

    def __repr__(self) -> str:
        return f"LiveQuestion({self.number}, {self.windows!r}, {self.gold!r})"

    def features(self, index: int) -> list[Feature]:
        """One for each window."""
        found = []
        for row, lead, offsets in self.windows:
            plain = feature_of(index, row.inputs)
            aligned = (lead, offsets)
            found.append(Feature(index, plain.input_ids, plain.token_type_ids, aligned, plain.more))
        return found


class LiveQuestions(LiveData):
    """An eval_dataset of windows with `example_id` and `offset_mapping`, and the questions that these are of."""

    def __init__(self, name: str, dataset: Any, load: Callable[[Any], Iterable[Any]], examples: Any) -> None:
        super().__init__(name, dataset, load)
        numbers = {str(one["id"]): number for number, one in enumerate(examples)}
        self._questions = list(examples)
        self._windows: list[list[int]] = [[] for _ in self._questions]
        self._offsets: list[Any] = []
        for number in range(len(dataset)):
            row = dataset[number]
            if str(row["example_id"]) not in numbers:
                what = f"The row's example_id '{row['example_id']}' is not among the eval_examples."
                raise UserError(what, where=f"{name}:{number + 1}")
            self._windows[numbers[str(row["example_id"])]].append(number)
            self._offsets.append(row["offset_mapping"])
        without = next((i for i, windows in enumerate(self._windows) if not windows), None)
        if without is not None:
            what = f"The question '{self._questions[without]['id']}' of the eval_examples has no row here."
            raise UserError(what, where=name)

    def __len__(self) -> int:
        return len(self._questions)

    def examples(self, numbers: Sequence[int], form: Form) -> list[LiveExample]:
        """Some questions with all their windows."""
        rows = [row for number in numbers for row in self._windows[number]]
        read = dict(zip(rows, super().examples(rows, form), strict=True))
        return [self._question(number, [read[row] for row in self._windows[number]]) for number in numbers]

    def _question(self, number: int, rows: Sequence[LiveExample]) -> LiveQuestion:
        question = self._questions[number]
        windows = tuple((row, *context_of(self._offsets[row.number])) for row in rows)
        longest = max(rows, key=lambda row: len(row.inputs["input_ids"]))
        gold = golds_of(question.get("answers"))
        return LiveQuestion(number, longest.inputs, {}, gold, str(question["context"]), windows)


def has_texts(dataset: Any, examples: Any) -> bool:
    """Whether rows say which question they are of and where their pieces stand in its context."""
    if dataset is None or examples is None or not len(dataset) or not len(examples):
        return False
    row = dataset[0]
    return isinstance(row, Mapping) and {"example_id", "offset_mapping"} <= set(row)


def context_of(offsets: Sequence[Any]) -> tuple[int, NDArray[np.int64]]:
    """The first piece of the context and the characters of its pieces; those of others are None, as examples have it.

    >>> context_of([None, None, (0, 3), (3, 5), None])[0]
    2
    """
    places = [place for place, pair in enumerate(offsets) if pair is not None]
    if not places:
        return 0, np.zeros((0, 2), np.int64)
    first, last = places[0], places[-1]
    return first, np.array([pair or (0, 0) for pair in offsets[first : last + 1]], np.int64)


def golds_of(answers: Any) -> tuple[tuple[str, int], ...] | None:
    """Answers as SQuAD's data sets have them: lists of texts and starts, or a list of answers."""
    if answers is None:
        return None
    if isinstance(answers, Mapping):
        return tuple(zip(map(str, answers["text"]), map(int, answers["answer_start"]), strict=True))
    return tuple((str(one["text"]), int(one["answer_start"])) for one in answers)
