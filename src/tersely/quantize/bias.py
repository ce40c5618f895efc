"""Bias correction: what quantization adds to a layer's output on average is taken off its bias."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..quant_map import Floats
from .weights import QuantWeight, dequantize


def corrected_bias(
    bias: Floats | None,
    weight: Floats,
    quantized: QuantWeight,
    mean_input: Floats,
    mean_quantized_input: Floats,
) -> Floats:
    """The bias [out] with which the mean output equals the float layer's: bias + E[x]·W - E[x̂]·Ŵ.

    `mean_input` and `mean_quantized_input` [in] are means over the same tokens. None as a bias counts as zeros.

    >>> rounded = QuantWeight(np.array([[1]], np.int8), np.array([1.0], np.float32))
    >>> corrected_bias(None, np.array([[1.5]], np.float32), rounded, np.ones(1, np.float32), np.ones(1, np.float32))
    array([0.5], dtype=float32)
    """
    # float64: the two products nearly cancel.
    wanted = mean_input.astype(np.float64) @ weight.astype(np.float64)
    given = mean_quantized_input.astype(np.float64) @ dequantize(quantized).astype(np.float64)
    return np.asarray((0 if bias is None else bias) + wanted - given, np.float32)


def matched_statistics(weight: Floats, quantized: QuantWeight) -> QuantWeight:
    """The same integers with scales that give each channel (or the tensor) the spread of its float weights back.

    ξ of arXiv 1810.05723, section 4.2; its shift μ of the weights' mean cannot go into scales, and the part of it that
    lasts is what `corrected_bias` takes off. Worth little at 8 bits: factors lie within 0.5 % of 1, and the error of a
    layer's output changes by -0.1 to +0.2 %.

    >>> coarse = QuantWeight(np.array([[-1], [1]], np.int8), np.array([0.5], np.float32))
    >>> matched_statistics(np.array([[-0.4], [0.4]], np.float32), coarse).scales
    array([0.4], dtype=float32)
    """
    axis = 0 if len(quantized.scales) > 1 or weight.shape[1] == 1 else None
    wanted = np.atleast_1d(weight.std(axis=axis, dtype=np.float64))
    given = np.atleast_1d(dequantize(quantized).std(axis=axis, dtype=np.float64))
    usable = (wanted > 0) & (given > 0)
    factor = np.divide(wanted, given, out=np.ones_like(wanted), where=usable)
    return replace(quantized, scales=np.asarray(quantized.scales * factor, np.float32))
