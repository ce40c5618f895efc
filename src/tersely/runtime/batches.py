"""Features to logits: sort by length, cut by rows and by tokens, pad, run, put back in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engines.engine import Batch, Engine
from ..tasks import Feature

MAX_BATCH_TOKENS = 16_384


def run(
    engine: Engine,
    features: Sequence[Feature],
    pad_id: int,
    *,
    batch_size: int = 16,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
    progress: Callable[[int], None] | None = None,
) -> list[NDArray[np.float32]]:
    """Logits of every feature, without its padding, in the order given.

    [labels] for models that answer once a row, [length, labels] for those that answer once a token, and with two
    outputs (start, end) [length, 2].
    """
    results: list[NDArray[np.float32] | None] = [None] * len(features)
    for chosen in cut([len(feature) for feature in features], batch_size, max_batch_tokens):
        outputs = engine.run(pad([features[i] for i in chosen], pad_id))
        logits = outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
        for row, i in enumerate(chosen):
            # Copied where it is a slice, so that one short row does not keep its whole padded batch in memory.
            results[i] = logits[row] if logits.ndim == 2 else logits[row, : len(features[i])].copy()
        if progress is not None:
            progress(len(chosen))
    return [result for result in results if result is not None]


def cut(lengths: Sequence[int], batch_size: int, max_batch_tokens: int) -> Iterator[list[int]]:
    """Batches of indices, longest first: memory peaks at once, and neighbours need little padding.

    >>> list(cut([3, 9, 4, 8], batch_size=2, max_batch_tokens=16))
    [[1], [3, 2], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        size = max(1, min(batch_size, max_batch_tokens // longest))
        yield order[start : start + size]
        start += size


def pad(features: Sequence[Feature], pad_id: int, length: int = 0) -> Batch:
    """`input_ids`, `attention_mask`, `token_type_ids` [rows, longest, or `length`], and what else the features have."""
    shape = (len(features), max(length, *(len(feature) for feature in features)))
    input_ids = np.full(shape, pad_id, np.int64)
    attention_mask, token_type_ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, feature in enumerate(features):
        input_ids[row, : len(feature)] = feature.input_ids
        attention_mask[row, : len(feature)] = feature.more.get("attention_mask", 1)
        token_type_ids[row, : len(feature)] = feature.token_type_ids
    batch = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
    return {**batch, **{name: _stack(features, name, shape[1]) for name in features[0].more if name not in batch}}


def _stack(features: Sequence[Feature], name: str, longest: int) -> NDArray[Any]:
    """One of the further inputs; what has an entry for each token is filled up with zeros."""
    rows = [np.asarray(feature.more[name]) for feature in features]
    if all(row.ndim and len(row) == len(feature) for row, feature in zip(rows, features, strict=True)):
        rows = [np.pad(row, [(0, longest - len(row)), *[(0, 0)] * (row.ndim - 1)]) for row in rows]
    return np.stack(rows)
