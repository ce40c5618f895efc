"""Watch the values inside a graph while rows run through it: a few batches in memory at a time, padding left out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from .. import engines
from ..progress import SILENT, Progress
from ..runtime.batches import cut, pad
from ..tasks import Feature
from .statistics import Statistics

Floats = NDArray[np.float32]

# Tokens that run at once. What is watched of them is what calibration keeps in memory: 50 MB for a small encoder of
# 6 layers, 250 MB for a base model of 12.
BATCH_TOKENS = 1024
BATCH_ROWS = 32


def observe(
    proto: Any,
    values: Mapping[str, int],
    features: Sequence[Feature],
    pad_id: int,
    *,
    cuts: Sequence[int] = (),
    divisors: Mapping[str, Floats] | None = None,
    progress: Progress = SILENT,
) -> Iterator[tuple[int, dict[str, Statistics]]]:
    """Statistics of each value over each stretch of features: up to the first cut, from there to the second, …

    One pass serves every nested set of rows: merge the stretches. `values`: by name the axis of the positions.
    `divisors` (by value, [channels]): what a value is divided by before it is looked at.
    """
    ends = sorted({*(end for end in cuts if 0 < end < len(features)), len(features)})
    with _Watch(proto, values) as watch, progress.track("calibrate", len(features)) as advance:
        start = 0
        for end in ends:
            stretch = {name: Statistics() for name in values}
            for seen, count in watch.run(features[start:end], pad_id):
                for name, (tokens, lengths) in seen.items():
                    divisor = (divisors or {}).get(name)
                    stretch[name].observe(tokens if divisor is None else tokens / divisor, lengths)
                advance(count)
            yield end, stretch
            start = end


def watch(
    proto: Any, values: Mapping[str, int], features: Sequence[Feature], pad_id: int
) -> Iterator[dict[str, Floats]]:
    """Each value's tokens [tokens, channels], batch by batch."""
    with _Watch(proto, values) as watching:
        for seen, _ in watching.run(features, pad_id):
            yield {name: tokens for name, (tokens, _) in seen.items()}


class _Watch:
    """The graph with inner values as outputs, on ONNX Runtime."""

    def __init__(self, proto: Any, values: Mapping[str, int]) -> None:
        self._values = values
        self._scratch = tempfile.TemporaryDirectory(prefix="laconic-")
        watched = onnx.ModelProto()
        watched.CopyFrom(proto)
        given = {value.name for value in watched.graph.output}
        for name in values:
            if name not in given:
                watched.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        self._path = Path(self._scratch.name) / "watched.onnx"
        onnx.save_model(watched, self._path)

    def __enter__(self) -> _Watch:
        self._engine = engines.load("onnxruntime", self._path)
        return self

    def __exit__(self, *_: object) -> None:
        del self._engine  # Windows removes no file that is open
        self._scratch.cleanup()

    def run(
        self, features: Sequence[Feature], pad_id: int
    ) -> Iterator[tuple[dict[str, tuple[Floats, NDArray[np.int64]]], int]]:
        lengths = [len(feature) for feature in features]
        for chosen in cut(lengths, BATCH_ROWS, BATCH_TOKENS):
            batch = pad([features[i] for i in chosen], pad_id)
            outputs = dict(zip(self._engine.outputs, self._engine.run(batch), strict=True))
            mask = np.asarray(batch["attention_mask"]).astype(bool)
            yield {name: real_tokens(outputs[name], mask, axis) for name, axis in self._values.items()}, len(chosen)


def real_tokens(array: Floats, mask: NDArray[np.bool_], axis: int) -> tuple[Floats, NDArray[np.int64]]:
    """Take a value's real positions as [tokens, channels], and how many each sample has.

    `axis` is that of the positions. Values that have none (a pooled [rows, channels], a table of relative positions)
    are taken whole. Heads may stand as an axis of their own ([rows, heads, length, size]) or with the rows.

    >>> value = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    >>> tokens, lengths = real_tokens(value, np.array([[True, True, False], [True, False, False]]), axis=1)
    >>> tokens.tolist(), lengths.tolist()
    ([[0.0, 1.0], [2.0, 3.0], [6.0, 7.0]], [2, 1])
    """
    rows, length = mask.shape
    if array.ndim == 2 and len(array) == rows * length:  # [rows · length, channels]
        array, axis = array.reshape(rows, length, -1), 1
    if array.ndim <= axis or array.shape[axis] != length or array.shape[0] % rows:
        flat = array.reshape(-1, array.shape[-1])
        samples = rows if array.shape[0] == rows else 1
        return flat, np.full(samples, len(flat) // samples, np.int64)
    # The positions' axis second, so that the mask [rows (· heads), length] picks [positions, all else].
    moved = np.moveaxis(array, axis, 1)
    repeated = np.repeat(mask, array.shape[0] // rows, axis=0)
    picked = moved[repeated]
    lengths = mask.sum(axis=1) * (array.shape[0] // rows)
    per_token = int(np.prod(picked.shape[1:-1], dtype=np.int64)) if picked.ndim > 2 else 1
    return picked.reshape(-1, picked.shape[-1]), lengths * per_token
