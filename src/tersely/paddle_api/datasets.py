"""A trainer's datasets, row by row as its own collator makes them: tokenized already, padding taken off again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from ..data.rows import Rows
from ..errors import UserError

Arrays = Mapping[str, NDArray[Any]]
ITEM = "item"
ALIASES = {"labels": ("label", "label_ids")}


@dataclass(frozen=True, eq=False)
class LiveExample:
    """A row of a dataset: its place there, inputs and labels by name, without padding; `gold` as the task reads it."""

    number: int
    inputs: Arrays
    targets: Arrays = field(default_factory=dict)
    gold: Any = None

    def __repr__(self) -> str:
        """Tell rows of different content apart, however long they are."""
        digest = hashlib.sha256()
        for name, array in sorted({**self.inputs, **self.targets}.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return f"LiveExample({self.number}, {digest.hexdigest()})"


@dataclass(frozen=True)
class Form:
    """What batches hold: inputs that the model takes, labels, the id of padding, and names for batches that are tuples.

    `masked`: the model takes an `attention_mask`, so that padding can be taken off. `a_piece`: labels have one entry a
    piece, and lose theirs too.
    """

    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    pad_id: int
    names: tuple[str, ...]
    masked: bool = True
    a_piece: bool = False


class LiveData:
    """One dataset by its name in messages. `load` gives batches of a part of it, in order."""

    def __init__(self, name: str, dataset: Any, load: Callable[[Any], Iterable[Any]]) -> None:
        self.name, self.dataset, self._load = name, dataset, load
        try:
            self._size = len(dataset)
        except TypeError:
            what = f"The {name} is a {type(dataset).__name__}, which has no length."
            raise UserError(what, hint="Give one with rows that can be counted, such as list(dataset).") from None
        if self._size == 0:
            raise UserError(f"The {name} has no rows.")
        self._read: dict[int, LiveExample] = {}

    def __len__(self) -> int:
        return self._size

    def rows(self) -> Rows:
        """Its rows by number, for those who divide them; their content is read when it is needed."""
        count = len(self)
        return Rows(self.name, (ITEM,), tuple({ITEM: i} for i in range(count)), tuple(range(1, count + 1)))

    def batches(self, numbers: Sequence[int], names: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        """Batches of some rows as arrays by name; those that come as tuples get the names given."""
        given = iter(self._load(Subset(self.dataset, list(numbers))))
        while True:
            try:
                batch = next(given)
            except StopIteration:
                return
            except UserError:
                raise
            except Exception as error:  # whatever a dataset or collator of the user's may raise
                what = f"The rows cannot be collated: {type(error).__name__}: {error}"
                hint = "They go through the Trainer's data_collator as in evaluate()."
                raise UserError(what, where=self.name, hint=hint) from error
            yield as_arrays(batch, names, self.name)

    def all(self, form: Form) -> list[LiveExample]:
        """Every row."""
        return self.examples(range(len(self)), form)

    def examples(self, numbers: Sequence[int], form: Form) -> list[LiveExample]:
        """Some rows; each is collated once."""
        missing = [number for number in numbers if number not in self._read]
        place = 0
        for batch in self.batches(missing, form.names) if missing else ():
            count = len(batch["input_ids"])
            for row, number in enumerate(missing[place : place + count]):
                self._read[number] = _example(batch, row, number, form)
            place += count
        if place != len(missing):
            what = f"The data_collator made {place} rows out of {len(missing)} of the {self.name}."
            raise UserError(what, hint="A collator must keep every row.")
        return [self._read[number] for number in numbers]


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
        other = next((one for one in others if one in found), None)
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


def _example(batch: Arrays, row: int, number: int, form: Form) -> LiveExample:
    longest = batch["input_ids"].shape[1]
    length = longest
    mask = batch.get("attention_mask")
    if mask is None or mask.ndim != 2:
        mask = batch["input_ids"] != form.pad_id
    if form.masked:
        real = np.flatnonzero(mask[row])
        length = int(real[-1]) + 1 if len(real) else 1

    def cut(name: str, a_piece: bool) -> NDArray[Any]:
        array = batch[name]
        is_a_piece = a_piece and array.ndim > 1 and array.shape[1] == longest
        return np.array(array[row, :length] if is_a_piece else array[row])

    inputs = {name: cut(name, True) for name in form.inputs if name in batch and name != "attention_mask"}
    if form.masked and not mask[row, :length].all():  # more than padding at the end is left out
        inputs["attention_mask"] = np.array(mask[row, :length], np.int64)
    return LiveExample(number, inputs, {name: cut(name, form.a_piece) for name in form.labels if name in batch})
