"""Which of the rows that wait go into the engine together."""

from __future__ import annotations

from collections.abc import Sequence

SIZES = (1, 2, 4, 8, 16)
"""Rows a batch. Few sizes and few lengths: OpenVINO prepares for each shape anew and keeps that, 3 MB each and more."""

OVERHEAD = 32
"""What a run costs beside its pieces, in pieces that one thread could have done: calling, copying, the smallest work.

Six layers of 384 on one thread of a VNNI CPU: 6.2 ms for a row of 64, 10.4 for two, 19.1 for four, 34.5 for eight.
"""

STEP = {"openvino": 16}
"""Lengths are padded up to multiples of this. A row of 56 takes OpenVINO as long as one of 64; ONNX Runtime, which
prepares nothing, takes each length as it is."""


def rounded(length: int, step: int = 1) -> int:
    """The length that a row is padded to: a multiple of `step`, beyond 16 of them an eighth of the power of two below.

    >>> [rounded(length, 16) for length in (3, 64, 65, 129, 300)]
    [16, 64, 80, 144, 320]
    """
    if step > 1:
        step = max(step, (1 << (max(1, length - 1).bit_length() - 1)) // 8)
    return -(-length // step) * step


def next_batch(lengths: Sequence[int], first: int, max_tokens: int, overhead: int = OVERHEAD) -> list[int]:
    """Indices of the batch that row `first` belongs to when all rows are cut into batches at the least cost.

    Rows are sorted by length; a batch costs its rows times its longest, and `overhead`. Exact, by dynamic programming.

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
            # Of two that cost the same the larger: those who wait longer are answered sooner.
            if cost <= best:
                best, chosen = cost, size
        least[end], sizes[end] = best + overhead, chosen
    end = len(order)
    while True:
        batch = order[end - sizes[end] : end]
        if first in batch:
            return sorted(batch)
        end -= sizes[end]
