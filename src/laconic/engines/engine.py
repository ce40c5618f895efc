"""`Engine`: a batch in, logits out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Batch = Mapping[str, NDArray[np.integer]]


class Engine(Protocol):
    """One loaded model. `inputs` are the names it takes; others in a batch are passed over."""

    name: str
    precision: str
    threads: int
    inputs: tuple[str, ...]

    def run(self, batch: Batch) -> tuple[NDArray[np.float32], ...]:
        """`input_ids`, `attention_mask`, … [rows, length] to the model's outputs, in its own order."""
