"""What calibration keeps of one activation tensor: a fold over samples that grows with neither samples nor tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

# Bins on each side of 0. `KL` needs 2048 over [0, max]; max may lie just above reach/2, which leaves 4096.
SIDE = 8192

# The narrowest reach: below it SIDE/reach would leave float32. Smaller values share the two bins next to 0.
NARROWEST = 2.0**-112

# Values counted at a time: 256 kB in float32, so that the passes over a chunk stay in the cache and memory flat.
CHUNK = 2**16


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


class Histogram:
    """How often values fall into 2·8192 equal bins over [-reach, reach): 128 kB, however many values.

    The reach is the power of two above the largest magnitude. When a larger value comes it doubles and neighbouring
    bins merge; bins nest and multiplying by a power of two is exact, so the counts are those that one pass with the
    final reach would give: neither order nor the cut into batches matters. 2 ms per million values on one thread.
    """

    def __init__(self) -> None:
        self.reach = NARROWEST
        self.counts: NDArray[np.int64] = np.zeros(2 * SIDE, np.int64)

    def add(self, values: NDArray[np.float32]) -> None:
        """Count finite values [n]."""
        if values.size == 0:
            return
        largest = max(-float(values.min()), float(values.max()))
        if largest >= self.reach:
            self._widen(2.0 ** math.frexp(largest)[1])  # the power of two strictly above
        scale, side = np.float32(SIDE / self.reach), np.float32(SIDE)
        scaled = np.empty(min(CHUNK, values.size), np.float32)
        for first in range(0, values.size, CHUNK):
            chunk = values[first : first + CHUNK]
            bins = scaled[: chunk.size]
            np.multiply(chunk, scale, out=bins)
            np.floor(bins, out=bins)  # before adding: -0.3 + 8192 rounds, and a value just below an edge would move
            np.add(bins, side, out=bins)
            # By way of int32: float32 to int64 has no vector instruction on most CPUs and takes twice as long.
            self.counts += np.bincount(bins.astype(np.int32), minlength=2 * SIDE)

    def merge(self, other: Histogram) -> None:
        """Take in another's counts; the finer of the two comes to the coarser, the other itself stays as it is."""
        self._widen(other.reach)
        self.counts += _merged(other.counts, self.reach / other.reach)

    def values(self, low: float, high: float) -> Distribution:
        """The values, of which the least is `low` and the greatest `high`."""
        scale = SIDE / self.reach
        first, last = math.floor(low * scale), math.floor(high * scale)
        edges = np.clip(np.arange(first, last + 2) / scale, low, high)
        return Distribution(edges, self.counts[SIDE + first : SIDE + last + 1].astype(np.float64))

    def magnitudes(self, least: float, largest: float) -> Distribution:
        """The values' magnitudes, of which the least is `least` and the greatest `largest`."""
        scale = SIDE / self.reach
        folded = self.counts[SIDE:] + self.counts[SIDE - 1 :: -1]
        # Bins hold their lower edge. Of -x that is the upper one of x, so the least may lie at the end of a bin.
        first, last = max(math.ceil(least * scale) - 1, 0), math.floor(largest * scale)
        edges = np.clip(np.arange(first, last + 2) / scale, least, largest)
        return Distribution(edges, folded[first : last + 1].astype(np.float64))

    def _widen(self, reach: float) -> None:
        if reach > self.reach:
            self.counts, self.reach = _merged(self.counts, reach / self.reach), reach


def _merged(counts: NDArray[np.int64], factor: float) -> NDArray[np.int64]:
    """The counts in bins that are wider by a power of two."""
    together = int(min(factor, SIDE))
    kept = SIDE // together
    merged = np.zeros_like(counts)
    merged[SIDE - kept : SIDE + kept] = counts.reshape(-1, together).sum(axis=1)
    return merged


@dataclass(frozen=True)
class Distribution:
    """Values spread evenly within bins: edges [bins + 1] ascending, counts [bins]. A bin without width is a point."""

    edges: Doubles
    counts: Doubles

    def quantile(self, share: float) -> float:
        """The value below which this share of all lies."""
        below = np.cumsum(self.counts)
        wanted = share * below[-1]
        place = int(np.searchsorted(below, wanted))
        within = 1 - (below[place] - wanted) / self.counts[place]
        return float(self.edges[place] + within * (self.edges[place + 1] - self.edges[place]))

    def moments(self, points: Doubles) -> Doubles:
        """Sums [3, …] of 1, x and x² over the values x up to each point."""
        start, end = self.edges[:-1], self.edges[1:]
        below = np.zeros((3, len(self.counts) + 1))
        for order, mean in enumerate(_means(start, end)):
            np.cumsum(self.counts * mean, out=below[order, 1:])
        place = np.clip(np.searchsorted(self.edges, points, side="right") - 1, 0, len(self.counts) - 1)
        start, width = start[place], (end - start)[place]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(width > 0, np.clip((points - start) / width, 0, 1), points >= start)
        count = self.counts[place] * part
        sums = np.stack([count * mean for mean in _means(start, start + part * width)])
        return np.asarray(below[:, place] + sums)


def _means(start: Doubles, end: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Means of 1, x and x² over x spread evenly from start to end."""
    return np.ones_like(start), (start + end) / 2, (start * start + start * end + end * end) / 3
