"""Which of the rows that wait go into the engine together."""

from __future__ import annotations

from collections.abc import Sequence

SIZES = (1, 2, 4, 8, 16)
"""Rows a batch. Few sizes and few lengths: OpenVINO prepares for each shape anew and keeps what it prepared."""

OVERHEAD = 48
"""What a run costs beside its pieces, in pieces: starting threads, copying, calling."""


def rounded(length: int) -> int:
    """The length that a row is padded to: in steps of 8, from 128 on of an eighth of the power of two below.

    >>> [rounded(length) for length in (3, 64, 65, 129, 300)]
    [8, 64, 72, 144, 320]
    """
    step = max(8, (1 << (max(1, length - 1).bit_length() - 1)) // 8)
    return -(-length // step) * step


def next_batch(lengths: Sequence[int], first: int, max_tokens: int) -> list[int]:
    """Indices of the batch that row `first` belongs to when all rows are cut into batches at the least cost.

    Rows are sorted by length; a batch costs its rows times its longest, and `OVERHEAD`. Exact, by dynamic programming.

    >>> next_batch([64, 64, 8, 8, 8, 8], first=3, max_tokens=1024)
    [2, 3, 4, 5]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    least = [0.0] * (len(order) + 1)
    sizes = [1] * (len(order) + 1)
    for end, index in enumerate(order, 1):
        longest = lengths[index]
        best, chosen = least[end - 1] + longest, 1
        for size in SIZES[1:]:
            if size > end or size * longest > max_tokens:
                break
            cost = least[end - size] + size * longest
            # A larger batch saves an overhead: `<=` takes it where all else is equal.
            if cost <= best:
                best, chosen = cost, size
        least[end], sizes[end] = best + OVERHEAD, chosen
    end = len(order)
    while True:
        batch = order[end - sizes[end] : end]
        if first in batch:
            return sorted(batch)
        end -= sizes[end]
