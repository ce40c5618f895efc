"""The rows that pruning without training looks at: drawn by seed, as many as statistics need and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..engines.torch import input_names
from ..models.folder import ModelFolder
from ..tasks import Feature
from ..training.batches import Collator

BATCH = 16
POSITIONS = 40_000
"""Tokens that statistics are taken of: memory and time do not grow with the rows that there are."""
HELD_OUT = 5
"""One row in so many fits nothing and judges."""
CHUNK = 128

Inputs = Mapping[str, torch.Tensor]
Key = tuple[str, int]
"""HEADS or NEURONS, and a layer."""
Weights = Mapping[Key, torch.Tensor]
"""What each position of a batch counts for an output projection [rows, length]."""


@dataclass(frozen=True)
class Sample:
    """Batches of a model's inputs [rows, length]; labels are not among them. `held_out` fits nothing.

    Without weights all positions count alike.
    """

    fitting: tuple[Inputs, ...]
    held_out: tuple[Inputs, ...]
    rows: int
    fitting_weights: tuple[Weights, ...] = ()
    held_out_weights: tuple[Weights, ...] = ()

    @property
    def weighted_fitting(self) -> list[tuple[Inputs, Weights]]:
        """Batches that fit, with the weights of their positions."""
        return list(zip(self.fitting, self.fitting_weights or ({},) * len(self.fitting), strict=True))

    @property
    def weighted_held_out(self) -> list[tuple[Inputs, Weights]]:
        """Batches that judge, with the weights of their positions."""
        return list(zip(self.held_out, self.held_out_weights or ({},) * len(self.held_out), strict=True))

    def part(self, positions: int) -> Sample:
        """A sample of about so many of these positions, batches of all lengths among them; all where there are few."""
        tokens = sum(int(inputs["input_ids"].numel()) for inputs in (*self.fitting, *self.held_out))
        every = max(1, round(tokens / positions))
        return Sample(
            self.fitting[::every],
            self.held_out[::every],
            max(1, self.rows // every),
            self.fitting_weights[::every],
            self.held_out_weights[::every],
        )


def draw(folder: ModelFolder, model: Any, examples: Sequence[Any], seed: int, *, positions: int = POSITIONS) -> Sample:
    """Draw rows until there are enough positions, or all."""
    order = np.random.default_rng(seed).permutation(len(examples))
    features: list[Feature] = []
    tokens = rows = 0
    for first in range(0, len(order), CHUNK):
        chunk = [examples[i] for i in order[first : first + CHUNK]]
        for feature in folder.task.features(chunk, folder.encoder):
            features.append(feature)
            tokens += len(feature)
        rows += len(chunk)
        if tokens >= positions:
            break
    judging = features[::HELD_OUT] if len(features) >= HELD_OUT else []
    fitting = [feature for number, feature in enumerate(features) if number % HELD_OUT or not judging]
    collate = Collator(folder.encoder, input_names(model))
    return Sample(_batches(fitting, collate), _batches(judging or features, collate), rows)


def _batches(features: Sequence[Feature], collate: Collator) -> tuple[Inputs, ...]:
    """Long rows with long ones: little padding."""
    ordered = sorted(features, key=lambda feature: -len(feature))
    return tuple(
        collate([{"feature": feature} for feature in ordered[first : first + BATCH]])
        for first in range(0, len(ordered), BATCH)
    )
