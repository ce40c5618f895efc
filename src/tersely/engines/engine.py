"""`Engine`: a batch in, logits out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

Batch = Mapping[str, NDArray[np.integer[Any]]]
Outputs = tuple[NDArray[np.float32], ...]


INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""What an encoder may take."""


class Engine(Protocol):
    """One loaded model. `inputs` are the names it takes; others in a batch are passed over.

    `outputs` are the names of what `run` gives, in its order. `run` may be called from several threads; what it gives
    belongs to the caller and is not written to again.
    """

    name: str
    precision: str
    threads: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, batch: Batch) -> Outputs:
        """`input_ids`, `attention_mask`, … [rows, length] to the model's outputs, in its own order."""


def pick(batch: Batch, names: tuple[str, ...]) -> dict[str, NDArray[np.integer[Any]]]:
    """Take from a batch what a model wants; say so if something is missing."""
    missing = [name for name in names if name not in batch]
    if missing:
        raise UserError(
            f"The model takes the input '{missing[0]}', which the batch does not have.",
            hint=f"The batch has: {', '.join(batch) or 'nothing'}.",
        )
    return {name: batch[name] for name in names}
