"""Watch the values inside a graph while rows run through it: a batch in memory at a time, padding left out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from .. import engines
from ..progress import SILENT, Progress
from ..runtime.predictor import cut, pad
from ..tasks import Feature
from .statistics import Statistics

Floats = NDArray[np.float32]
Lengths = NDArray[np.int64]

Axes = Mapping[str, "int | None"]
"""Values by name, and which of their axes is that of the positions; None: a constant, which is looked at once."""

# Tokens that run at once. What is watched of them is what calibration keeps in memory: 70 MB for a small encoder of
# 6 layers, 270 MB for a base model of 12.
BATCH_TOKENS = 1024
BATCH_ROWS = 32


def observe(
    proto: Any,
    values: Axes,
    features: Sequence[Feature],
    pad_id: int,
    *,
    cuts: Sequence[int] = (),
    divisors: Mapping[str, Floats] | None = None,
    progress: Progress = SILENT,
) -> Iterator[tuple[int, dict[str, Statistics]]]:
    """Statistics of each value over each stretch of features: up to the first cut, from there to the second, …

    One pass serves every nested set of rows: merge the stretches. `divisors` (by value, [channels]): what a value is
    divided by before it is looked at.
    """
    ends = sorted({*(end for end in cuts if 0 < end < len(features)), len(features)})
    with _Watch(proto, values) as watching, progress.track("calibrate", len(features)) as advance:
        start = 0
        for end in ends:
            stretch = {name: Statistics() for name in values}
            for seen, count in watching.run(features[start:end], pad_id):
                for name, (tokens, lengths) in seen.items():
                    divisor = (divisors or {}).get(name)
                    stretch[name].observe(tokens if divisor is None else tokens / divisor, lengths)
                advance(count)
            yield end, stretch
            start = end


def watch(
    proto: Any, values: Axes, features: Sequence[Feature], pad_id: int, *, title: str, progress: Progress = SILENT
) -> Iterator[dict[str, Floats]]:
    """Each value's tokens [tokens, channels], batch by batch; constants only with the first.

    When the next batch is asked for, the one before is emptied: there are never two in memory.
    """
    with _Watch(proto, values) as watching, progress.track(title, len(features)) as advance:
        for seen, count in watching.run(features, pad_id):
            shown = {name: tokens for name, (tokens, _) in seen.items()}
            yield shown
            shown.clear()
            advance(count)


class _Watch:
    """The graph with inner values as its outputs, on ONNX Runtime."""

    def __init__(self, proto: Any, values: Axes) -> None:
        self._waiting = dict(values)
        self._scratch = tempfile.TemporaryDirectory(prefix="tersely-")
        watched = onnx.ModelProto()
        watched.CopyFrom(proto)
        # Its own outputs are not: what comes after the last value that is watched need not run.
        del watched.graph.output[:]
        watched.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in values)
        self._path = Path(self._scratch.name) / "watched.onnx"
        onnx.save_model(watched, self._path)

    def __enter__(self) -> _Watch:
        self._engine = engines.load(engines.REFERENCE, self._path)
        return self

    def __exit__(self, *_: object) -> None:
        del self._engine  # Windows removes no file that is open
        self._scratch.cleanup()

    def run(self, features: Sequence[Feature], pad_id: int) -> Iterator[tuple[dict[str, tuple[Floats, Lengths]], int]]:
        lengths = [len(feature) for feature in features]
        for chosen in cut(lengths, BATCH_ROWS, BATCH_TOKENS):
            batch = pad([features[i] for i in chosen], pad_id)
            outputs = dict(zip(self._engine.outputs, self._engine.run(batch), strict=True))
            mask = np.asarray(batch["attention_mask"]).astype(bool)
            # Taken out one by one, so that there are not two copies of all; emptied before the next batch runs.
            seen = {name: _seen(outputs.pop(name), mask, axis) for name, axis in self._waiting.items()}
            yield seen, len(chosen)
            seen.clear()
            self._waiting = {name: axis for name, axis in self._waiting.items() if axis is not None}


def _seen(array: Floats, mask: NDArray[np.bool_], axis: int | None) -> tuple[Floats, Lengths]:
    if axis is not None:
        return real_tokens(array, mask, axis)
    flat = array.reshape(-1, array.shape[-1])
    return flat, np.array([len(flat)])


def real_tokens(array: Floats, mask: NDArray[np.bool_], axis: int) -> tuple[Floats, Lengths]:
    """Take a value's real positions as [tokens, channels], and how many each sample has.

    `axis` is that of the positions, best counted from the end: heads may stand as an axis of their own ([rows, heads,
    length, size]) or with the rows ([rows · heads, length, size]). Positions may also stand with the rows ([rows ·
    length, channels]). A value without positions (one that was pooled: [rows, channels]) is taken whole.

    >>> value = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    >>> tokens, lengths = real_tokens(value, np.array([[True, True, False], [True, False, False]]), axis=-2)
    >>> tokens.tolist(), lengths.tolist()
    ([[0.0, 1.0], [2.0, 3.0], [6.0, 7.0]], [2, 1])
    """
    rows, length = mask.shape
    if array.ndim == 2 and len(array) == rows * length:
        array = array.reshape(rows, length, -1)
    beside, rest = divmod(array.shape[0], rows)  # heads that stand with the rows
    if array.ndim < 3 or array.shape[axis] != length or rest:
        flat = array.reshape(-1, array.shape[-1])
        samples = 1 if rest else rows
        return flat, np.full(samples, len(flat) // samples)
    # The positions' axis second, so that the mask [rows (· heads), length] picks [positions, all else].
    picked = np.moveaxis(array, axis, 1)[np.repeat(mask, beside, axis=0)]
    return picked.reshape(-1, picked.shape[-1]), mask.sum(axis=1) * beside * prod(picked.shape[1:-1])
