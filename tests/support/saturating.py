"""Integer products as CPUs give them: with pairs summed in 16 bits that saturate (pmaddubsw), and exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def emulate(codes: NDArray[np.uint8], integers: NDArray[np.int8]) -> NDArray[np.int32]:
    """Products [tokens, out] of codes [tokens, in] and weights [in, out] on CPUs without VNNI, overflow and all.

    Slow (a loop over pairs). ONNX Runtime's integer products on avx2 equal it bit for bit.
    """
    left, right = codes.astype(np.int32), integers.astype(np.int32)
    total = np.zeros((len(left), right.shape[1]), np.int32)
    for row in range(0, len(right), 2):
        pair = left[:, row : row + 2] @ right[row : row + 2]
        total += np.clip(pair, -(2**15), 2**15 - 1, out=pair)
    return total


def exact(codes: NDArray[np.uint8], integers: NDArray[np.int8]) -> NDArray[np.int32]:
    """The same products summed in 32 bits, as CPUs with VNNI give them."""
    # float64 holds every such sum exactly and multiplies with BLAS, which integers do not.
    return np.asarray(codes.astype(np.float64) @ integers.astype(np.float64), np.int32)
