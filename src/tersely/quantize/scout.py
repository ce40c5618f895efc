"""A first look at the layers' inputs: which channels are large, and a few tokens to judge decisions on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..progress import SILENT, Progress
from ..tasks import Feature
from .observe import Axes, Floats, watch

TOKENS = 512
"""Tokens kept of each input, so that memory does not grow with the rows: 0.8 to 6 MB an input."""


@dataclass
class Glimpse:
    """Of one input: the extremes of each channel, with 0 [channels], and an even draw of its tokens."""

    channel_low: Floats
    channel_high: Floats
    tokens: Floats

    @property
    def channel_max(self) -> Floats:
        """The largest magnitude of each channel [channels]."""
        return np.maximum(self.channel_high, -self.channel_low)


def scout(
    proto: Any,
    values: Axes,
    features: Sequence[Feature],
    pad_id: int,
    *,
    seed: int,
    progress: Progress = SILENT,
) -> dict[str, Glimpse]:
    """Run the rows once and keep a draw of tokens by seed (each has the same chance, whatever the batch)."""
    random = np.random.default_rng(seed)
    drawn: dict[str, _Reservoir] = {name: _Reservoir(np.random.default_rng(random.integers(2**63))) for name in values}
    for seen in watch(proto, values, features, pad_id, title="look", progress=progress):
        for name, tokens in seen.items():
            drawn[name].add(tokens)
    return {name: reservoir.glimpse() for name, reservoir in drawn.items()}


class _Reservoir:
    """Keeps the tokens with the smallest random keys: a fair draw of a stream."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._keys: NDArray[np.float64] = np.empty(0)
        self._tokens: Floats | None = None
        self._extremes: tuple[Floats, Floats] | None = None

    def add(self, tokens: Floats) -> None:
        low, high = tokens.min(axis=0, initial=0), tokens.max(axis=0, initial=0)
        if self._extremes is not None:
            low, high = np.minimum(self._extremes[0], low), np.maximum(self._extremes[1], high)
        self._extremes = low, high
        keys = self._random.random(len(tokens))
        kept = self._tokens if self._tokens is not None else tokens[:0]
        worth = keys < self._keys.max(initial=0) if len(self._keys) >= TOKENS else np.full(len(keys), True)
        keys, kept = np.concatenate([self._keys, keys[worth]]), np.concatenate([kept, tokens[worth]])
        order = np.argsort(keys, kind="stable")[:TOKENS]
        self._keys, self._tokens = keys[order], kept[order]

    def glimpse(self) -> Glimpse:
        if self._extremes is None or self._tokens is None:
            return Glimpse(np.zeros(0, np.float32), np.zeros(0, np.float32), np.zeros((0, 0), np.float32))
        return Glimpse(*self._extremes, self._tokens)
