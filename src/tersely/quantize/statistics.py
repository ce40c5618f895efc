"""What calibration keeps of one activation tensor: a fold over samples that grows with neither samples nor tokens."""

from __future__ import annotations

import copy
import math

import numpy as np
from numpy.typing import NDArray

from .histogram import Distribution, Histogram

__all__ = ["Histogram", "Statistics"]

Floats = NDArray[np.float32]


class Statistics:
    """Everything the calibrators ask of a tensor, from one pass over its samples; 128 kB and 4 bytes per channel.

    `low`, `high`: least and greatest value, exact (inf and -inf before any). `samples`: how many had a value.
    `channel_max` [channels]: largest magnitude per channel, exact; None before any value, and for tensors whose number
    of channels changes (attention products). `finite`: False once NaN or infinity came; those are counted nowhere.

    A calibrator only reads, so one fold serves nested sets of samples: settle, observe more, settle again.

    >>> statistics = Statistics()
    >>> statistics.observe(np.array([[1, -2], [0, 1], [4, 0]], np.float32), np.array([2, 1]))  # two samples
    >>> statistics.low, statistics.high, statistics.samples, statistics.mean_max
    (-2.0, 4.0, 2, 3.0)
    >>> statistics.channel_max.tolist()
    [4.0, 2.0]
    """

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.samples = 0
        self.finite = True
        self.histogram = Histogram()
        self.channel_max: Floats | None = None
        self._sum_of_max = 0.0
        self._ragged = False  # once the number of channels has changed, there is no maximum per channel any more

    @property
    def largest(self) -> float:
        """The largest magnitude, exact; 0 before any value."""
        return max(0.0, -self.low, self.high)

    @property
    def least(self) -> float:
        """A magnitude that none is below: exact for tensors of one sign, 0 for others."""
        return max(0.0, self.low, -self.high) if self.samples else 0.0

    @property
    def mean_max(self) -> float:
        """Mean over samples of the sample's largest magnitude; 0 before any value."""
        return self._sum_of_max / max(self.samples, 1)

    def values(self) -> Distribution:
        """How the values are distributed; there must be some."""
        return self.histogram.values(self.low, self.high)

    def magnitudes(self) -> Distribution:
        """How the magnitudes are distributed; there must be some."""
        return self.histogram.magnitudes(self.least, self.largest)

    def observe(self, values: Floats, lengths: NDArray[np.integer]) -> None:
        """Fold in the tokens of several samples, one sample after the other: values [tokens, channels].

        `lengths` [samples] says how many tokens each has; the caller has left out padding. 3 ms per million values.
        """
        values = np.ascontiguousarray(values, np.float32)
        if values.ndim != 2 or values.shape[0] != np.sum(lengths):
            raise ValueError(f"Values must be [{np.sum(lengths)}, channels], as the lengths say. Got {values.shape}.")
        if values.size == 0:
            return
        low, high = np.full(values.shape[1], np.inf, np.float32), np.full(values.shape[1], -np.inf, np.float32)
        finite = True
        for sample in np.split(values, np.cumsum(lengths)[:-1]):
            if sample.size:
                finite &= self._observe_sample(sample, low, high)
        if self.samples:
            self._take_channels(np.maximum(np.maximum(high, -low), 0))
        self.histogram.add(values.reshape(-1) if finite else values[np.isfinite(values)])
        self.finite &= finite

    def merge(self, other: Statistics) -> None:
        """Fold in what another observed, as if this one had."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.samples += other.samples
        self.finite &= other.finite
        self.histogram.merge(other.histogram)
        self._sum_of_max += other._sum_of_max
        self._ragged |= other._ragged
        self._take_channels(other.channel_max)

    def copy(self) -> Statistics:
        """An independent fold that stands where this one does."""
        return copy.deepcopy(self)

    def _observe_sample(self, sample: Floats, low: Floats, high: Floats) -> bool:
        """Fold in a sample's extremes, also into those per channel [channels]; False if it holds NaN or infinity."""
        lows, highs = sample.min(axis=0), sample.max(axis=0)
        least, greatest = float(lows.min()), float(highs.max())
        finite = math.isfinite(least) and math.isfinite(greatest)
        if not finite:
            usable = np.isfinite(sample)
            if not usable.any():
                return False
            lows = sample.min(axis=0, where=usable, initial=np.inf)
            highs = sample.max(axis=0, where=usable, initial=-np.inf)
            least, greatest = float(lows.min()), float(highs.max())
        np.minimum(low, lows, out=low)
        np.maximum(high, highs, out=high)
        self.low, self.high = min(self.low, least), max(self.high, greatest)
        self.samples += 1
        self._sum_of_max += max(-least, greatest)
        return finite

    def _take_channels(self, channels: Floats | None) -> None:
        if channels is not None and self.channel_max is not None:
            self._ragged |= channels.shape != self.channel_max.shape
        if self._ragged:
            self.channel_max = None
        elif channels is not None:
            known = self.channel_max
            self.channel_max = channels.copy() if known is None else np.maximum(known, channels)
