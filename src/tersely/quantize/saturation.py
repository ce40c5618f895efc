"""What CPUs without VNNI do to u8×s8 products: neighbours are summed in 16 bits that saturate (pmaddubsw)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..quant_map import Integers

Codes = NDArray[np.uint8]
Sums = NDArray[np.int32]

PAIR_LIMIT = 128
"""The largest safe magnitude of a pair's same-sign sum: 255·128 = 32 640 fits into 16 bits, 255·129 does not."""

_LOWEST, _HIGHEST = -(2**15), 2**15 - 1


def unsafe_pairs(integers: Integers) -> int:
    """How many pairs of neighbours along the summed axis of [in, out] can overflow, whatever the input; 0 is proof.

    >>> unsafe_pairs(np.array([[100, 100], [28, 29]], np.int8))
    1
    """
    first, second = pairs(integers.astype(np.int16))
    # Of two opposite signs neither passes 128 alone, and their sum is smaller still: so |sum| is the whole test.
    return int(np.count_nonzero(np.abs(first + second) > PAIR_LIMIT))


def pairs(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Views of rows 0, 2, 4, … and of their neighbours 1, 3, 5, …; an odd last row is summed alone and is in neither.

    >>> pairs(np.array([10, 11, 12, 13, 14]))
    (array([10, 12]), array([11, 13]))
    """
    paired = len(rows) // 2 * 2
    return rows[0:paired:2], rows[1:paired:2]


def emulate(codes: Codes, integers: Integers) -> Sums:
    """Products [tokens, out] of codes [tokens, in] and weights [in, out] as such a CPU gives them, overflow and all.

    Slow (a loop over pairs): for proofs and tests. ONNX Runtime's integer products on avx2 equal it bit for bit.

    >>> emulate(np.array([[255, 255]], np.uint8), np.array([[127], [127]], np.int8))
    array([[32767]], dtype=int32)
    """
    left, right = codes.astype(np.int32), integers.astype(np.int32)
    total = np.zeros((len(left), right.shape[1]), np.int32)
    for row in range(0, len(right), 2):
        pair = left[:, row : row + 2] @ right[row : row + 2]
        total += np.clip(pair, _LOWEST, _HIGHEST, out=pair)
    return total


def exact(codes: Codes, integers: Integers) -> Sums:
    """The same products summed in 32 bits, as CPUs with VNNI give them.

    >>> exact(np.array([[255, 255]], np.uint8), np.array([[127], [127]], np.int8))
    array([[64770]], dtype=int32)
    """
    # float64 holds every such sum exactly and multiplies with BLAS, which integers do not.
    return np.asarray(codes.astype(np.float64) @ integers.astype(np.float64), np.int32)
