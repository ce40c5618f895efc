"""Counts of values in bins that widen as larger values come, and what the counts say of the values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

# Bins on each side of 0. `KL` needs 2048 over [0, max]; max may lie just above reach/2, which leaves 4096.
SIDE = 8192

# The narrowest reach: below it SIDE/reach would leave float32. Smaller values share the two bins next to 0.
NARROWEST = 2.0**-112

# Values counted at a time: 256 kB in float32, so that the passes over a chunk stay in the cache and memory flat.
CHUNK = 2**16


class Histogram:
    """How often values fall into 2·8192 equal bins over [-reach, reach): 128 kB, however many values.

    The reach is the power of two above the largest magnitude. When a larger value comes it doubles and neighbouring
    bins merge; bins nest and multiplying by a power of two is exact, so the counts are those that one pass with the
    final reach would give: neither order nor the cut into batches matters. 2 ms per million values on one thread.
    """

    def __init__(self) -> None:
        self.reach = NARROWEST
        self.counts: Counts = np.zeros(2 * SIDE, np.int64)

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
        finer = other.copy()
        finer._widen(self.reach)
        self.counts += finer.counts

    def copy(self) -> Histogram:
        """An independent histogram with the same counts."""
        copied = Histogram()
        copied.reach, copied.counts = self.reach, self.counts.copy()
        return copied

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
        if reach <= self.reach:
            return
        merged = int(min(reach / self.reach, SIDE))
        kept = SIDE // merged
        counts = np.zeros_like(self.counts)
        counts[SIDE - kept : SIDE + kept] = self.counts.reshape(-1, merged).sum(axis=1)
        self.counts, self.reach = counts, reach


@dataclass(frozen=True)
class Distribution:
    """Values spread evenly within bins: edges [bins + 1] ascending, counts [bins]. A bin without width is a point."""

    edges: Floats
    counts: Floats

    def quantile(self, share: float) -> float:
        """The value below which this share of all lies."""
        below = np.cumsum(self.counts)
        wanted = share * below[-1]
        place = int(np.searchsorted(below, wanted))
        within = 1 - (below[place] - wanted) / self.counts[place]
        return float(self.edges[place] + within * (self.edges[place + 1] - self.edges[place]))

    def moments(self, points: Floats) -> Floats:
        """Sums [3, …] of 1, x and x² over the values x up to each point."""
        start, end = self.edges[:-1], self.edges[1:]
        whole = np.zeros((3, len(self.counts) + 1))
        for order, mean in enumerate(_means(start, end)):
            np.cumsum(self.counts * mean, out=whole[order, 1:])
        place = np.clip(np.searchsorted(self.edges, points, side="right") - 1, 0, len(self.counts) - 1)
        start, width = start[place], (end - start)[place]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(width > 0, np.clip((points - start) / width, 0, 1), points >= start)
        count = self.counts[place] * part
        sums = np.stack([count * mean for mean in _means(start, start + part * width)])
        return np.asarray(whole[:, place] + sums)


def _means(start: Floats, end: Floats) -> tuple[Floats, Floats, Floats]:
    """Means of 1, x and x² over x spread evenly from start to end."""
    return np.ones_like(start), (start + end) / 2, (start * start + start * end + end * end) / 3
