"""Smoothing: large input channels are divided, their weights multiplied, so that both round well (SmoothQuant)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..progress import SILENT, Progress
from ..quant_map import Floats, Range
from ..tasks import Feature
from .observe import Axes, watch
from .weights import dequantize, quantize_weight

ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

# A small encoder's norms give channels up to 3 to 17 times the median one, its attention 2 to 4 times; inputs without
# outliers 1.3 to 1.6 times.
OUTLIER_RATIO = 2.0

# What the error must fall by, for the multiplication that smoothing adds before a matmul.
_WORTH = 0.2

_LARGEST_FACTOR = 1e4

BALANCES = (0.5, 0.25, 0.12, 0.08, 0.05, 0.03)
"""GELU's outputs in two small encoders were best with 0.25 (last layers) to 0.03 (first layers)."""

TOKENS = 512
"""Tokens kept of each input, so that memory does not grow with the rows: 0.8 to 6 MB an input."""


@dataclass(frozen=True)
class Smoothing:
    """How an input is smoothed: α of the formula, and what the shorter side of 0 may take of the longer one's room.

    Dividing each channel by its largest magnitude makes the two sides of a lopsided input equally long: a channel that
    only GELU's small negative values reach is blown up until they fill as many codes as another's positive ones. With
    a `balance` below 1 such channels are divided by more, and the codes that frees go to the longer side.
    """

    alpha: float
    balance: float = 1.0

    def vector(self, low: Floats, high: Floats, weight_max: Floats) -> Floats:
        """What each channel [in] is divided by, from its extremes, `low` <= 0 <= `high`."""
        return smoothing_vector(magnitudes(low, high, self.balance), weight_max, self.alpha)


def magnitudes(low: Floats, high: Floats, balance: float = 1.0) -> Floats:
    """How far each channel reaches, the shorter side of the whole counted 1 / balance times.

    >>> magnitudes(np.array([-1.0, -1.0]), np.array([8.0, 0.0]), 0.25)
    array([8., 4.])
    """
    short, long = (-low, high) if -low.min(initial=0) <= high.max(initial=0) else (high, -low)
    reach: Floats = np.maximum(long, short / balance)
    return reach


def largest_weights(weights: Sequence[Floats]) -> Floats:
    """The largest magnitude [in] by which each channel is multiplied in any of the weights [in, out]."""
    return np.asarray(np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0))


def smoothing_vector(input_max: Floats, weight_max: Floats, alpha: float) -> Floats:
    """What each input channel is divided by [in]: max|x|^α / max|w|^(1-α), arXiv 2211.10438 eq. 4.

    `weight_max` [in] is over all outputs of all layers that share the input. The vector is scaled to a geometric mean
    of 1, which changes no rounding. A channel that is never fed is divided by 1; one that no weight reads counts as
    if the smallest weight did, since what it holds must not widen the range.

    >>> smoothing_vector(np.array([16.0, 1.0, 0.0], np.float32), np.ones(3, np.float32), 0.5)
    array([2. , 0.5, 1. ], dtype=float32)
    """
    inputs, weights = input_max.astype(np.float64), weight_max.astype(np.float64)
    fed = inputs > 0
    weights = np.maximum(weights, weights[weights > 0].min(initial=1.0 if not weights.any() else np.inf))
    logs = alpha * np.log(inputs, where=fed, out=np.zeros_like(inputs)) - (1 - alpha) * np.log(weights)
    if not fed.any():
        return np.ones(len(inputs), np.float32)
    factors = np.exp(logs - logs[fed].mean())
    factors = np.clip(factors, 1 / _LARGEST_FACTOR, _LARGEST_FACTOR)
    return np.where(fed, factors, 1).astype(np.float32)


def has_outliers(input_max: Floats) -> bool:
    """Whether some channels are much larger than most: the largest maximum against the median one.

    >>> has_outliers(np.array([1.0, 1.2, 0.9, 30.0], np.float32)), has_outliers(np.array([1.0, 1.2, 0.9], np.float32))
    (True, False)
    """
    fed = input_max[input_max > 0]
    return len(fed) > 0 and bool(fed.max() > OUTLIER_RATIO * np.median(fed))


def choose_smoothing(samples: Floats, weights: Sequence[Floats], alphas: Sequence[float] = ALPHAS) -> Smoothing | None:
    """The α and balance with the least output error on samples [tokens, in]; None where smoothing is not worth it.

    `weights` [in, out] share the input. Ranges and vectors are fitted on the first half of the tokens, errors taken on
    the second; each layer's counts relative to its output. Costs a product of half the tokens per try and layer.
    """
    half = len(samples) // 2
    if half == 0 or not alphas:
        return None
    fitted, judged = samples[:half], samples[half:]
    low, high = fitted.min(axis=0, initial=0), fitted.max(axis=0, initial=0)
    if not has_outliers(magnitudes(low, high)):
        return None
    weight_max = largest_weights(weights)
    wanted = [judged @ weight for weight in weights]

    def error(vector: Floats) -> float:
        smooth = fitted / vector
        range_ = Range(min(0.0, float(smooth.min())), max(0.0, float(smooth.max())))
        inputs = range_.fake_quantize(judged / vector)
        total = 0.0
        for weight, output in zip(weights, wanted, strict=True):
            rounded = dequantize(quantize_weight(weight * vector[:, None]))
            energy = float(np.square(output, dtype=np.float64).sum())
            total += float(np.square(output - inputs @ rounded, dtype=np.float64).sum()) / (energy or 1.0)
        return total

    def error_of(smoothing: Smoothing) -> float:
        return error(smoothing.vector(low, high, weight_max))

    errors = {smoothing: error_of(smoothing) for smoothing in map(Smoothing, alphas)}
    best = min(errors, key=errors.__getitem__)
    if _is_lopsided(low, high):
        # With less room for the short side the best α is the same or larger.
        stronger = [alpha for alpha in alphas if alpha >= best.alpha]
        more = (Smoothing(alpha, balance) for alpha in stronger for balance in BALANCES)
        errors |= {smoothing: error_of(smoothing) for smoothing in more}
        best = min(errors, key=errors.__getitem__)
    return best if errors[best] <= (1 - _WORTH) * error(np.ones_like(low)) else None


def _is_lopsided(low: Floats, high: Floats) -> bool:
    """Whether one sign reaches less than half as far as the other, as in GELU's output (-0.17 to 10)."""
    sides = sorted((float(-low.min()), float(high.max())))
    return sides[0] < sides[1] / 2


class InputSample:
    """Of one input: the extremes of each channel, with 0 [channels], and an even draw of its tokens.

    Of a stream the tokens with the smallest random keys are kept: a fair draw.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._keys: NDArray[np.float64] = np.empty(0)
        self.channel_low: Floats = np.zeros(0, np.float32)
        self.channel_high = self.channel_low
        self.tokens: Floats = np.zeros((0, 0), np.float32)

    @property
    def channel_max(self) -> Floats:
        """The largest magnitude of each channel [channels]."""
        return np.maximum(self.channel_high, -self.channel_low)

    def add(self, tokens: Floats) -> None:
        """Take in a batch [tokens, channels]."""
        if not self._keys.size:
            self.channel_low = self.channel_high = np.zeros(tokens.shape[1], np.float32)
            self.tokens = tokens[:0]
        self.channel_low = np.minimum(self.channel_low, tokens.min(axis=0, initial=0))
        self.channel_high = np.maximum(self.channel_high, tokens.max(axis=0, initial=0))
        keys = self._random.random(len(tokens))
        worth = keys < (self._keys.max() if len(self._keys) >= TOKENS else 1)
        keys, kept = np.concatenate([self._keys, keys[worth]]), np.concatenate([self.tokens, tokens[worth]])
        order = np.argsort(keys, kind="stable")[:TOKENS]
        self._keys, self.tokens = keys[order], kept[order]


def sample_inputs(
    proto: Any, values: Axes, features: Sequence[Feature], pad_id: int, *, seed: int, progress: Progress = SILENT
) -> dict[str, InputSample]:
    """Run the rows once and keep a draw of tokens by seed (each has the same chance, whatever the batch)."""
    random = np.random.default_rng(seed)
    drawn = {name: InputSample(np.random.default_rng(random.integers(2**63))) for name in values}
    for seen in watch(proto, values, features, pad_id, title="look", progress=progress):
        for name, tokens in seen.items():
            drawn[name].add(tokens)
    return drawn
