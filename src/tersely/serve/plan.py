"""Which of the rows that wait go into the engine together."""

from __future__ import annotations

from collections.abc import Sequence

from ..engines import ENGINES

COSTS = {name: facts.costs for name, facts in ENGINES.items() if facts.costs is not None}
"""What a batch costs, by engine that serves."""


def rounded(length: int, step: int = 1) -> int:
    """The length that a row is padded to: a multiple of `step`, beyond 16 of them an eighth of the power of two below.

    >>> [rounded(length, 16) for length in (3, 64, 65, 129, 300)]
    [16, 64, 80, 144, 320]
    """
    if step > 1:
        step = max(step, (1 << (max(1, length - 1).bit_length() - 1)) // 8)
    return -(-length // step) * step


def next_batch(lengths: Sequence[int], first: int, max_tokens: int, overhead: int, sizes: Sequence[int]) -> list[int]:
    """Indices of the batch that row `first` belongs to when all rows are cut into batches at the least cost.

    Rows are sorted by length; a batch costs its rows times its longest, and `overhead`. Exact, by dynamic programming.
    `sizes` ascend from 1.

    >>> next_batch([64, 64, 8, 8, 8, 8], first=3, max_tokens=1024, overhead=32, sizes=(1, 2, 4))
    [2, 3, 4, 5]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    least = [0.0] * (len(order) + 1)
    last = [1] * (len(order) + 1)
    for end, index in enumerate(order, 1):
        longest = lengths[index]
        best, chosen = least[end - 1] + longest, 1
        for size in sizes[1:]:
            if size > end or size * longest > max_tokens:
                break
            cost = least[end - size] + size * longest
            # Of two that cost the same the larger: those who wait longer are answered sooner.
            if cost <= best:
                best, chosen = cost, size
        least[end], last[end] = best + overhead, chosen
    end = len(order)
    while True:
        batch = order[end - last[end] : end]
        if first in batch:
            return sorted(batch)
        end -= last[end]
