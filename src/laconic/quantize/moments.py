"""Streamed moments of layers' inputs and of the same inputs quantized: all that AdaRound and bias correction need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..quant_map import Range
from ..tasks import Feature
from .observe import Floats, watch

# Matrices of moments kept at a time. A base model's would take 3 GB together: then there are several passes.
MATRIX_BYTES = 512 * 2**20


@dataclass
class Moments:
    """Sums over tokens of x, x̂ (x divided by its smoothing vector; x̂ its quantized self) and of their products.

    `plain`, `cross`, `second` [in, in] are means of xᵀx, x̂ᵀx and x̂ᵀx̂; None where only means were asked for.
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
    """Round to the 256 codes of a range and back, as engines with u8 inputs do."""
    step, zero = range_.unsigned()
    codes = np.clip(np.rint(x / step) + zero, 0, 255)
    return np.asarray((codes - zero) * step, np.float32)


def stream_moments(
    proto: Any,
    ranges: Mapping[str, Range],
    divisors: Mapping[str, Floats],
    sizes: Mapping[str, int],
    sets: Sequence[Sequence[Feature]],
    pad_id: int,
    *,
    matrices: bool,
) -> Iterator[tuple[str, list[Moments]]]:
    """Give by input value its moments over each set of features; memory does not grow with the rows.

    `sizes`: channels of each value. Values come in several passes where their matrices would not fit at once.
    """
    for names in _portions(sizes, matrices):
        found = {name: [Moments() for _ in sets] for name in names}
        for place, features in enumerate(sets):
            for seen in watch(proto, dict.fromkeys(names, 1), features, pad_id):
                for name, tokens in seen.items():
                    x = tokens / divisors[name] if name in divisors else tokens
                    found[name][place].add(x, fake_quantize(x, ranges[name]), matrices)
        yield from found.items()


def _portions(sizes: Mapping[str, int], matrices: bool) -> Iterator[list[str]]:
    portion: list[str] = []
    held = 0
    for name, size in sizes.items():
        cost = 2 * 3 * 4 * size * size if matrices else 0
        if portion and held + cost > MATRIX_BYTES:
            yield portion
            portion, held = [], 0
        portion.append(name)
        held += cost
    yield portion
