"""Features as a torch data set, and the collator that pads them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler

from ..runtime.predictor import pad
from ..tasks import Encoder, Feature, Task
from ..tasks.task import IGNORED

LABELLED = "labelled_rows"
"""What says, in a batch [rows], which rows have labels; not there where all have, or none is asked for one."""


SORTED = 50
"""Batches whose rows are sorted by length together."""


class FeatureDataset(Dataset[dict[str, Any]]):  # type: ignore[misc]
    """Every window of every example, with its targets unless they are not wanted, or the example has no gold."""

    def __init__(self, task: Task, examples: Sequence[Any], encoder: Encoder, *, labelled: bool = True) -> None:
        self.features = task.features(examples, encoder)
        golden = [labelled and example.gold is not None for example in examples]
        mixed = labelled and not all(golden)
        self.targets: list[Mapping[str, Any]] = []
        for feature in self.features:
            own = golden[feature.example]
            targets = task.targets(examples[feature.example], feature) if own else {}
            self.targets.append({**targets, LABELLED: own} if mixed else targets)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"feature": self.features[index], **self.targets[index]}


class AlikeLengths(Sampler[int]):  # type: ignore[misc]
    """Rows in random order, those of a batch of about the same length; the same by seed and epoch.

    Random batches are up to half padding (MSRA-NER, 16 rows: 102 positions a row, 46 of them tokens). Not for labels
    alone: where these go with the length of a text, batches of one length teach that first.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed, self.epoch = np.asarray(lengths), batch_size, seed, 0

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng([self.seed, self.epoch])
        order = generator.permutation(len(self.lengths))
        batches = len(order) // self.batch_size
        full, rest = order[: batches * self.batch_size], order[batches * self.batch_size :]
        found: list[NDArray[np.int64]] = []
        for first in range(0, len(full), SORTED * self.batch_size):
            some = full[first : first + SORTED * self.batch_size]
            found += list(some[np.argsort(self.lengths[some], kind="stable")].reshape(-1, self.batch_size))
        for number in generator.permutation(batches):
            yield from found[number].tolist()
        yield from rest.tolist()

    def set_epoch(self, epoch: int) -> None:
        """Which order comes next; trainers say it, in a run that goes on too."""
        self.epoch = epoch


class Collator:
    """Pads a batch to its longest row, and labels of tokens with what the loss passes over."""

    def __init__(self, encoder: Encoder, inputs: Collection[str]) -> None:
        self.pad_id, self.inputs = encoder.pad_id, frozenset(inputs)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Give tensors by the names that a model's forward takes."""
        features: list[Feature] = [row["feature"] for row in rows]
        arrays = {name: array for name, array in pad(features, self.pad_id).items() if name in self.inputs}
        batch = {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}
        for name in dict.fromkeys(name for row in rows for name in row if name != "feature"):
            known = {place: np.asarray(row[name]) for place, row in enumerate(rows) if name in row}
            first = next(iter(known.values()))
            fill = IGNORED if first.dtype == np.int64 else 0
            per_token = all(value.ndim and len(value) == len(features[place]) for place, value in known.items())
            shapes = [(len(feature), *first.shape[1:]) if per_token else first.shape for feature in features]
            values = [known.get(place, np.full(shape, fill, first.dtype)) for place, shape in enumerate(shapes)]
            batch[name] = torch.from_numpy(stacked(values, fill) if per_token else np.stack(values))
        return batch


def stacked(rows: Sequence[NDArray[Any]], fill: int) -> NDArray[Any]:
    """Rows [length, …] as one array, filled up along their first axis where lengths differ."""
    longest = max(len(row) for row in rows)
    wide = [[(0, longest - len(row)), *[(0, 0)] * (row.ndim - 1)] for row in rows]
    return np.stack([np.pad(row, pads, constant_values=fill) for row, pads in zip(rows, wide, strict=True)])
