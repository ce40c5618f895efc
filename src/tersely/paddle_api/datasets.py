"""A trainer's datasets, row by row as its own collator makes them: tokenized already, padding taken off again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from ..data.rows import Rows
from ..errors import UserError
from ..tasks import Feature
from ..tasks.own import feature_of

Arrays = Mapping[str, NDArray[Any]]
ITEM = "item"
ALIASES = {"labels": ("label", "label_ids")}


@dataclass(frozen=True, eq=False)
class TrainerRow:
    """A row of a dataset: its place there, inputs and labels by name, without padding; `gold` as the task reads it."""

    has_texts: ClassVar[bool] = False

    number: int
    inputs: Arrays
    targets: Arrays = field(default_factory=dict)
    gold: Any = None

    def __repr__(self) -> str:
        """Tell rows of different content apart, however long they are."""
        digest = hashlib.sha256()
        for name, array in sorted({**self.inputs, **self.targets}.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return f"TrainerRow({self.number}, {digest.hexdigest()})"

    def features(self, index: int) -> list[Feature]:
        """The one that the model is given; `index`: the row's among those that are answered."""
        return [feature_of(index, self.inputs)]


@dataclass(frozen=True)
class BatchForm:
    """What batches hold: inputs that the model takes, labels, the id of padding, and names for batches that are tuples.

    `masked`: the model takes an `attention_mask`, so that padding can be taken off. `label_per_token`: labels have one
    entry for each token, and lose theirs too.
    """

    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    pad_id: int
    names: tuple[str, ...]
    masked: bool = True
    label_per_token: bool = False


class TrainerDataset:
    """One dataset by its name in messages. `load` gives batches of a part of it, in order."""

    has_texts = False

    def __init__(self, name: str, dataset: Any, load: Callable[[Any], Iterable[Any]]) -> None:
        self.name, self.dataset, self._load = name, dataset, load
        try:
            self._size = len(dataset)
        except TypeError:
            what = f"The {name} is a {type(dataset).__name__}, which has no length."
            raise UserError(what, hint="Give one with rows that can be counted, such as list(dataset).") from None
        if self._size == 0:
            raise UserError(f"The {name} has no rows.")
        self._read: dict[int, TrainerRow] = {}

    def __len__(self) -> int:
        return self._size

    def rows(self) -> Rows:
        """Its rows by number, for those who divide them; their content is read when it is needed."""
        count = len(self)
        return Rows(self.name, (ITEM,), tuple({ITEM: i} for i in range(count)), tuple(range(1, count + 1)))

    def batches(self, numbers: Sequence[int], names: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        """Batches of some rows as arrays by name; `names` are for those that come as tuples."""
        return (as_arrays(batch, names, self.name) for batch in self._collated(numbers))

    def examples(self, numbers: Sequence[int], form: BatchForm) -> list[TrainerRow]:
        """Some rows; each is collated once."""
        missing = [number for number in numbers if number not in self._read]
        place = 0
        for batch in self.batches(missing, form.names) if missing else ():
            count = len(batch["input_ids"])
            for row, number in enumerate(missing[place : place + count]):
                self._read[number] = _without_padding(batch, row, number, form)
            place += count
        if place != len(missing):
            what = f"The data_collator made {place} rows out of {len(missing)} of the {self.name}."
            raise UserError(what, hint="A collator must keep every row.")
        return [self._read[number] for number in numbers]

    def _collated(self, numbers: Sequence[int]) -> Iterator[Any]:
        try:
            yield from self._load(Subset(self.dataset, list(numbers)))
        except UserError:
            raise
        except Exception as error:  # whatever a dataset or collator of the user's may raise
            what = f"The rows cannot be collated: {type(error).__name__}: {error}"
            hint = "They go through the Trainer's data_collator as in evaluate()."
            raise UserError(what, where=self.name, hint=hint) from error


class UnlabelledDataset(TrainerDataset):
    """A dataset whose labels, if it has any, are not read."""

    def examples(self, numbers: Sequence[int], form: BatchForm) -> list[TrainerRow]:
        """Some rows, without labels."""
        return super().examples(numbers, replace(form, labels=()))


def as_arrays(batch: Any, names: Sequence[str], where: str) -> dict[str, NDArray[Any]]:
    """A batch by name, whatever its collator made: what is no array, or empty, is left out."""
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        if len(batch) > len(names):
            what = f"A row of the {where} holds {len(batch)} tensors; the model's forward has names for {len(names)}."
            raise UserError(what, hint="Name them in order with 'tensor_names' of the arguments.")
        batch = dict(zip(names, batch, strict=False))
    if not hasattr(batch, "items"):
        what = f"The data_collator must give a mapping or a tuple of tensors. Got {type(batch).__name__}."
        raise UserError(what, where=where)
    arrays = {name: _array(value) for name, value in batch.items()}
    found = {name: array for name, array in arrays.items() if array is not None}
    for name, others in ALIASES.items():
        other = next((alias for alias in others if alias in found), None)
        if name not in found and other is not None:
            found[name] = found.pop(other)
    if "input_ids" not in found or found["input_ids"].ndim != 2:
        shown = ", ".join(f"{name} {list(array.shape)}" for name, array in found.items()) or "nothing"
        what = f"Batches must hold 'input_ids' [rows, length]. Got: {shown}."
        raise UserError(what, where=where, hint="Tokenize the texts first, or name a tuple's parts: 'tensor_names'.")
    return found


def _array(value: Any) -> NDArray[Any] | None:
    if value is None or isinstance(value, str):
        return None
    array = value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    return array if array.ndim and array.dtype.kind in "iubf" else None


def _without_padding(batch: Arrays, row: int, number: int, form: BatchForm) -> TrainerRow:
    length = longest = batch["input_ids"].shape[1]
    mask = batch.get("attention_mask")
    if mask is None or mask.ndim != 2:
        mask = batch["input_ids"] != form.pad_id
    if form.masked:
        real = np.flatnonzero(mask[row])
        length = int(real[-1]) + 1 if len(real) else 1

    def cut(name: str, per_token: bool) -> NDArray[Any]:
        array = batch[name]
        has_padding = per_token and array.ndim > 1 and array.shape[1] == longest
        return np.array(array[row, :length] if has_padding else array[row])

    inputs = {name: cut(name, True) for name in form.inputs if name in batch and name != "attention_mask"}
    if form.masked and not mask[row, :length].all():  # more than padding at the end is left out
        inputs["attention_mask"] = np.array(mask[row, :length], np.int64)
    return TrainerRow(number, inputs, {name: cut(name, form.label_per_token) for name in form.labels if name in batch})


Window = tuple[TrainerRow, int, NDArray[np.int64]]
"""A row of the dataset, the first token of its context, and the characters [tokens, 2] of the tokens from there on."""


@dataclass(frozen=True, eq=False)
class QuestionRow(TrainerRow):
    """A question with the windows over its context; `gold`: its answers as (text, first character)."""

    has_texts: ClassVar[bool] = True

    context: str = ""
    windows: tuple[Window, ...] = field(repr=False, default=())

    def __repr__(self) -> str:
        return f"QuestionRow({self.number}, {self.windows!r}, {self.gold!r})"

    def features(self, index: int) -> list[Feature]:
        """One for each window."""
        return [
            replace(feature_of(index, row.inputs), alignment=(lead, offsets)) for row, lead, offsets in self.windows
        ]


class QuestionDataset(TrainerDataset):
    """An eval_dataset of windows with `example_id` and `offset_mapping`, and the questions that these are of.

    Their texts are at hand, so that the score is SQuAD's own, over answers as strings.
    """

    has_texts = True

    def __init__(self, name: str, dataset: Any, load: Callable[[Any], Iterable[Any]], examples: Any) -> None:
        super().__init__(name, dataset, load)
        self._questions = list(examples)
        numbers = {str(question["id"]): number for number, question in enumerate(self._questions)}
        self._windows: list[list[int]] = [[] for _ in self._questions]
        self._offsets: list[Any] = []
        for number in range(len(dataset)):
            row = dataset[number]
            if str(row["example_id"]) not in numbers:
                what = f"The row's example_id '{row['example_id']}' is not among the eval_examples."
                raise UserError(what, where=f"{name}:{number + 1}")
            self._windows[numbers[str(row["example_id"])]].append(number)
            self._offsets.append(row["offset_mapping"])
        if [] in self._windows:
            question = self._questions[self._windows.index([])]
            raise UserError(f"The question '{question['id']}' of the eval_examples has no row here.", where=name)

    def __len__(self) -> int:
        return len(self._questions)

    def examples(self, numbers: Sequence[int], form: BatchForm) -> list[TrainerRow]:
        """Some questions with all their windows."""
        rows = [row for number in numbers for row in self._windows[number]]
        read = dict(zip(rows, super().examples(rows, form), strict=True))
        return [self._question(number, [read[row] for row in self._windows[number]]) for number in numbers]

    def _question(self, number: int, rows: Sequence[TrainerRow]) -> QuestionRow:
        question = self._questions[number]
        windows = tuple((row, *context_of(self._offsets[row.number])) for row in rows)
        longest = max(rows, key=lambda row: len(row.inputs["input_ids"]))
        gold = _golds(question.get("answers"))
        return QuestionRow(number, longest.inputs, {}, gold, str(question["context"]), windows)


def has_texts(dataset: Any, examples: Any) -> bool:
    """Whether rows say which question they are of and where their tokens stand in its context."""
    if dataset is None or examples is None or not len(dataset) or not len(examples):
        return False
    row = dataset[0]
    return isinstance(row, Mapping) and {"example_id", "offset_mapping"} <= set(row)


def context_of(offsets: Sequence[Any]) -> tuple[int, NDArray[np.int64]]:
    """The first token of the context and the characters of its tokens; those of others are None, as examples have it.

    >>> context_of([None, None, (0, 3), (3, 5), None])[0]
    2
    """
    places = [place for place, pair in enumerate(offsets) if pair is not None]
    if not places:
        return 0, np.zeros((0, 2), np.int64)
    first, last = places[0], places[-1]
    return first, np.array([pair or (0, 0) for pair in offsets[first : last + 1]], np.int64)


def _golds(answers: Any) -> tuple[tuple[str, int], ...] | None:
    """Answers as SQuAD's data sets have them: lists of texts and starts, or a list of answers."""
    if answers is None:
        return None
    if isinstance(answers, Mapping):
        return tuple(zip(map(str, answers["text"]), map(int, answers["answer_start"]), strict=True))
    return tuple((str(answer["text"]), int(answer["answer_start"])) for answer in answers)
