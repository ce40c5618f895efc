"""Features as a torch data set, and the collator that pads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from ..runtime.predictor import pad
from ..tasks import Encoder, Feature, Task
from ..tasks.task import IGNORED

LABELLED = "labelled_rows"
"""What says, in a batch [rows], which rows have labels; not there where all have, or none is asked for one."""


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
