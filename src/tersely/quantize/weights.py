"""Weights as INT8: one step per output channel or per tensor, fine where the CPU allows it; tables with one per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from ..errors import UserError, nearest
from ..graphs.layers import find_tables
from ..graphs.wiring import initializers
from ..quant_map import Floats, Integers, QuantTable
from .skip import fits

KINDS = ("channel_wise_abs_max", "abs_max")
CPU_CLASSES = ("all", "vnni")

LARGEST = 127
"""Integers lie in -127 … 127: -128 has no opposite."""

# Steps tried when the inputs' moments are known, from 0.7 of the one that holds the largest weight. Below that clipping
# costs more than a finer step gives; 80 instead of 32 lower a layer's error by another 1 %.
_CANDIDATES = 32
_FINEST = 0.7

# A channel that was silent on the calibration rows may speak later: no input counts less than this share of the mean.
_LEAST_IMPORTANCE = 0.01

# Columns worked on at a time: their temporaries stay in the cache.
_COLUMNS = 64

_TINY = np.finfo(np.float32).tiny

PAIR_LIMIT = 128
"""The largest safe magnitude of a pair's same-sign sum: 255·128 = 32 640 fits into 16 bits, 255·129 does not."""
# Rows worked on at a time, so that a vocabulary of 250,000 needs no second table of floats.
_ROWS = 8192


@dataclass(frozen=True)
class QuantWeight:
    """A weight as integers [in, out] times scales ([out], or [1] for one per tensor)."""

    integers: Integers
    scales: Floats


def quantize_weight(
    weight: Floats, kind: str = "channel_wise_abs_max", *, cpu_classes: str = "all", moments: Floats | None = None
) -> QuantWeight:
    """Round a weight [in, out] to INT8; for `cpu_classes="all"` so that no pair of neighbours overflows on any CPU.

    Without `moments` nothing is clipped: the step holds the largest weight and, for "all", the largest sum of two
    neighbours. `moments` [in], the mean of each input's square, choose the step with the least error of the layer's
    output instead, where a few weights may be clipped (3 to 7 % less error from weights, on rows held out; without
    moments the same search gains 1 % of the weights' own error and can lose 20 % of the output's).
    A weight of 768×3072 takes 0.02 s, with moments 0.45 s.

    >>> quantize_weight(np.array([[1.0, 1.0], [-0.2, 1.0]], np.float32)).integers
    array([[127,  64],
           [-25,  64]], dtype=int8)
    """
    _check(weight, kind, cpu_classes, moments)
    if moments is None:
        return round_weight(weight, abs_max_scales(weight, kind, cpu_classes=cpu_classes), cpu_classes=cpu_classes)
    pair_safe = cpu_classes == "all"
    importance = _importance(moments)
    finest, roomy = _steps(weight, kind, pair_safe)
    candidates = _usable(np.linspace(np.float32(_FINEST) * finest, roomy, _CANDIDATES))
    errors = _errors(weight, candidates, importance, pair_safe)
    if kind == "abs_max":
        errors = errors.sum(axis=1, keepdims=True)
    scales = np.take_along_axis(candidates, errors.argmin(axis=0)[None], axis=0)[0]
    return QuantWeight(_rounded(weight / scales, importance, pair_safe).astype(np.int8), scales)


def abs_max_scales(weight: Floats, kind: str = "channel_wise_abs_max", *, cpu_classes: str = "all") -> Floats:
    """Steps ([out], or [1] for one per tensor) that clip nothing of a weight [in, out] and, for "all", no pair.

    >>> abs_max_scales(np.array([[127.0, 1.0], [-127.0, 1.0]], np.float32))
    array([1.      , 0.015625], dtype=float32)
    """
    return _usable(_steps(weight, kind, cpu_classes == "all")[1])


def round_weight(weight: Floats, scales: Floats, *, cpu_classes: str = "all") -> QuantWeight:
    """Round a weight [in, out] at given steps; of a pair that would overflow both give the same."""
    ones = np.ones(len(weight), np.float32)
    return QuantWeight(_rounded(weight / scales, ones, cpu_classes == "all").astype(np.int8), scales)


def dequantize(quantized: QuantWeight) -> Floats:
    """The weight [in, out] that the integers stand for.

    >>> dequantize(QuantWeight(np.array([[-2, 3]], np.int8), np.array([0.5], np.float32)))
    array([[-1. ,  1.5]], dtype=float32)
    """
    return quantized.integers.astype(np.float32) * quantized.scales


def _check(weight: Floats, kind: str, cpu_classes: str, moments: Floats | None) -> None:
    check_word("weight_quantize_type", kind, KINDS)
    check_word("cpu_classes", cpu_classes, CPU_CLASSES)
    if not np.isfinite(weight).all():
        raise UserError("A weight with NaN or infinity cannot be quantized.", hint="Leave that layer float.")
    if moments is not None and moments.shape != weight.shape[:1]:
        raise UserError(f"There must be a moment for each of {len(weight)} inputs. Got {moments.shape}.")


def check_word(option: str, word: str, known: Sequence[str]) -> None:
    """Refuse a word that an option does not know."""
    if word not in known:
        raise UserError(f"There is no '{option}' called '{word}'.", hint=nearest(str(word), known))


def _steps(weight: Floats, kind: str, pair_safe: bool) -> tuple[Floats, Floats]:
    """The step that holds the largest weight, and the one that holds the largest sum of two neighbours as well."""
    finest = np.abs(weight).max(axis=0, initial=0) / np.float32(LARGEST)
    roomy = finest
    if pair_safe:
        first, second = pairs(weight)
        # Two reals that sum to 128 at most round to 128 at most, so this step is safe; one finer by 1/129 never is.
        roomy = np.maximum(finest, np.abs(first + second).max(axis=0, initial=0) / np.float32(PAIR_LIMIT))
    if kind == "abs_max":
        return finest.max(keepdims=True), roomy.max(keepdims=True)
    return finest, roomy


def _usable(scales: NDArray[Any]) -> Floats:
    """Steps that can be divided by; a channel of zeros has step 1."""
    return np.where(scales > 0, np.maximum(scales, _TINY), 1).astype(np.float32)


def _importance(moments: Floats) -> Floats:
    mean = float(moments.mean(dtype=np.float64))
    if not 0 < mean < np.inf:
        return np.ones_like(moments, np.float32)
    return np.asarray(np.maximum(moments / mean, _LEAST_IMPORTANCE), np.float32)


def _errors(weight: Floats, candidates: Floats, importance: Floats, pair_safe: bool) -> NDArray[np.float32]:
    """Squared error [candidates, out] of each channel at each step, inputs taken as uncorrelated.

    In units of the last step of the channel (or tensor), whose square alone might not fit into a float.
    """
    width = weight.shape[1]
    wide = np.broadcast_to(candidates, (len(candidates), width))
    errors = np.empty(wide.shape, np.float32)
    for start in range(0, width, _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        part = np.ascontiguousarray(weight[:, columns])
        for candidate, scales in enumerate(wide[:, columns]):
            real = part / scales
            lost = _rounded(real, importance, pair_safe)
            lost -= real
            lost *= lost
            errors[candidate, columns] = (importance @ lost) * np.square(scales / wide[-1, columns])
    return errors


def _rounded(real: Floats, importance: Floats, pair_safe: bool) -> Floats:
    """The nearest integers [in, out] that are allowed, as floats."""
    integers = np.rint(real)
    np.clip(integers, -LARGEST, LARGEST, out=integers)
    if pair_safe:
        _settle(real, integers, importance)
    return integers


def _settle(real: Floats, integers: Floats, importance: Floats) -> None:
    """Bring pairs that pass 128 down to it in place, each the cheapest way: the input that counts less gives more."""
    first, second = pairs(integers)
    sums = first + second
    row, column = np.nonzero(np.abs(sums) > PAIR_LIMIT)
    if len(row) == 0:
        return
    sign = np.sign(sums[row, column])
    left, right = (np.abs(rows[row, column]) for rows in pairs(real))
    weight_of_left, weight_of_right = (rows[row] for rows in pairs(importance))
    share = weight_of_right / (weight_of_left + weight_of_right)
    # On the line left + right = 128 the error is a parabola: the integer next to its minimum is the best there is.
    settled = np.clip(np.rint(left - (left + right - PAIR_LIMIT) * share), PAIR_LIMIT - LARGEST, LARGEST)
    first[row, column] = sign * settled
    second[row, column] = sign * (PAIR_LIMIT - settled)


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


def quantize_tables(proto: Any, skip_layers: Sequence[str] = ()) -> tuple[dict[str, QuantTable], dict[str, str]]:
    """The tables by name, and those left float with their reason."""
    tensors = initializers(proto.graph)
    tables: dict[str, QuantTable] = {}
    left_float: dict[str, str] = {}
    for name in dict.fromkeys(table.name for table in find_tables(proto)):
        array = np.asarray(numpy_helper.to_array(tensors[name]), np.float32)
        if any(fits(name, pattern) for pattern in skip_layers):
            left_float[name] = "skipped"
        elif not np.isfinite(array).all():
            left_float[name] = "not_finite"
        else:
            tables[name] = quantize_table(array)
    return tables, left_float


def quantize_table(table: Floats) -> QuantTable:
    """Round a table [rows, width] to INT8; every number moves by half a step of its row at most.

    A row of zeros (padding) stays zeros. NaN or infinity anywhere is refused: callers leave such a table float.

    >>> quantize_table(np.array([[0.5, -1.0], [0.0, 0.0]], np.float32))
    QuantTable(integers=array([[  64, -127],
           [   0,    0]], dtype=int8), scales=array([0.00787402, 1.        ], dtype=float32))
    """
    integers = np.empty(table.shape, np.int8)
    scales = np.empty(len(table), np.float32)
    for start in range(0, len(table), _ROWS):
        rows = table[start : start + _ROWS]
        largest = np.abs(rows).max(axis=1, initial=0)
        if not np.isfinite(largest).all():
            raise UserError("A table with NaN or infinity cannot be quantized.", hint="Leave that table float.")
        steps = np.where(largest > 0, np.maximum(largest / np.float32(LARGEST), _TINY), np.float32(1))
        scales[start : start + _ROWS] = steps
        integers[start : start + _ROWS] = np.clip(np.rint(rows / steps[:, None]), -LARGEST, LARGEST)
    return QuantTable(integers, scales)
