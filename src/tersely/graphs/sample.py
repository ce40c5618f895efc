"""Batches to trace and compare an export with, made so that no number in them can be mistaken for the model's own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..engines import Batch
from ..engines.engine import INPUTS
from ..errors import UserError


def sample_batches(module: nn.Module, inputs: Sequence[str]) -> list[Batch]:
    """Three batches of valid ids: several padded rows (for tracing), one short row, two rows of unequal length."""
    unknown = [name for name in inputs if name not in INPUTS]
    if unknown:
        raise UserError(f"No sample can be made up for the input '{unknown[0]}'.", hint="Pass 'sample' batches.")
    taken = _numbers(module)
    # The tracer takes a size that equals one of the model's for that one (a length of 12 for 12 heads).
    rows = next(number for number in count(3) if number not in taken)
    length = next(number for number in count(rows + 4) if number not in taken)
    shapes = ([length - row for row in range(rows)], [2], [length - 2, length + 6])
    return [_batch(module, inputs, lengths) for lengths in shapes]


def _batch(module: nn.Module, inputs: Sequence[str], lengths: list[int]) -> Batch:
    config = getattr(module, "config", None)
    pad = int(getattr(config, "pad_token_id", None) or 0)
    ids = [number for number in range(min(_vocabulary(module), 1000)) if number != pad] or [pad]
    shape = (len(lengths), max(lengths))
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    drawn = np.array(ids, dtype=np.int64)[np.random.default_rng(0).integers(len(ids), size=shape)]
    second: NDArray[np.int64] = (np.arange(shape[1]) >= shape[1] // 2).astype(np.int64) * mask
    batch = {"input_ids": np.where(mask == 1, drawn, pad), "attention_mask": mask, "token_type_ids": second}
    return {name: batch[name] for name in inputs}


def _vocabulary(module: nn.Module) -> int:
    config = getattr(module, "config", None)
    tables = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    return int(getattr(config, "vocab_size", None) or max(tables, default=2))


def _numbers(module: nn.Module) -> set[int]:
    config = getattr(module, "config", None)
    values: dict[str, Any] = config.to_dict() if config is not None else {}
    numbers = {value for value in values.values() if isinstance(value, int)}
    sizes = {size for parameter in module.parameters() for size in parameter.shape}
    return numbers | sizes | {len(values.get("id2label") or ())}
