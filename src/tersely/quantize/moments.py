"""Streamed moments of layers' inputs and of the same inputs quantized: all that AdaRound and bias correction need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..progress import SILENT, Progress
from ..quant_map import Range
from ..tasks import Feature
from .observe import Axes, Floats, watch

# Matrices of moments kept at a time. A base model's would take 3 GB together: then there are several passes.
MATRIX_BYTES = 512 * 2**20


@dataclass(frozen=True, eq=False)
class Feed:
    """What weights [channels, out] are fed: values with the axis of their positions, their range and divisor."""

    values: Axes
    range: Range
    divisor: Floats | None
    channels: int


@dataclass
class Moments:
    """Means over tokens of x, x̂ (x divided by its smoothing vector; x̂ its quantized self) and of their products.

    By name: `mean`, `mean_quantized` [in]; `plain`, `cross`, `second` [in, in] of xᵀx, x̂ᵀx and x̂ᵀx̂, where asked for.
    """

    tokens: int = 0
    _sums: dict[str, NDArray[Any]] = field(default_factory=dict)

    def add(self, x: Floats, quantized: Floats, matrices: bool) -> None:
        """Fold in tokens [tokens, in]."""
        self.tokens += len(x)
        self._put("mean", x.sum(axis=0, dtype=np.float64))
        self._put("mean_quantized", quantized.sum(axis=0, dtype=np.float64))
        if matrices:
            self._put("plain", x.T @ x)
            self._put("cross", quantized.T @ x)
            self._put("second", quantized.T @ quantized)

    def __getitem__(self, name: str) -> Floats:
        return np.asarray(self._sums[name] / max(self.tokens, 1), np.float32)

    def _put(self, name: str, summand: NDArray[Any]) -> None:
        if name in self._sums:
            self._sums[name] += summand
        else:
            self._sums[name] = summand


def fake_quantize(x: Floats, range_: Range) -> Floats:
    """Round to the 256 codes of a range and back, as engines with u8 inputs do.

    >>> fake_quantize(np.array([-9.0, 0.4, 0.6, 300.0], np.float32), Range(-5, 250)).tolist()
    [-5.0, 0.0, 1.0, 250.0]
    """
    step, zero = range_.unsigned()
    rounded = x / step
    np.rint(rounded, out=rounded)
    np.clip(rounded, -zero, 255 - zero, out=rounded)
    rounded *= step
    return rounded


def stream_moments(
    proto: Any,
    feeds: Sequence[Feed],
    sets: Sequence[Sequence[Feature]],
    pad_id: int,
    *,
    matrices: bool,
    progress: Progress = SILENT,
) -> Iterator[dict[Feed, list[Moments]]]:
    """Give the moments of each feed over each set of features; memory does not grow with the rows.

    They come in portions, a pass each, where the matrices of all would not fit at once.
    """
    for portion in _portions(feeds, len(sets), matrices):
        found = {feed: [Moments() for _ in sets] for feed in portion}
        values = {name: axis for feed in portion for name, axis in feed.values.items()}
        for place, features in enumerate(sets):
            for seen in watch(proto, values, features, pad_id, title="moments", progress=progress):
                for feed, moments in found.items():
                    _add(moments[place], feed, seen, matrices)
        yield found


def _add(moments: Moments, feed: Feed, seen: Mapping[str, Floats], matrices: bool) -> None:
    for name in feed.values:
        if name in seen:
            x = seen[name] if feed.divisor is None else seen[name] / feed.divisor
            moments.add(x, fake_quantize(x, feed.range), matrices)


def _portions(feeds: Sequence[Feed], sets: int, matrices: bool) -> Iterator[list[Feed]]:
    portion: list[Feed] = []
    held = 0
    for feed in feeds:
        cost = sets * 3 * 4 * feed.channels**2 if matrices else 0
        if portion and held + cost > MATRIX_BYTES:
            yield portion
            portion, held = [], 0
        portion.append(feed)
        held += cost
    if portion:
        yield portion
