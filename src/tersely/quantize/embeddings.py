"""Embedding tables as INT8, one scale per row: a lookup then multiplies one row by one number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from ..errors import UserError
from ..graphs.layers import find_tables
from ..quant_map import Floats, QuantTable
from .skip import fits

LARGEST = 127

# Rows worked on at a time, so that a vocabulary of 250,000 needs no second table of floats.
_ROWS = 8192

_TINY = np.finfo(np.float32).tiny


def quantize_tables(proto: Any, skip_layers: Sequence[str] = ()) -> tuple[dict[str, QuantTable], dict[str, str]]:
    """The tables by name, and those left float with their reason."""
    arrays = {tensor.name: tensor for tensor in proto.graph.initializer}
    tables: dict[str, QuantTable] = {}
    left_float: dict[str, str] = {}
    for name in dict.fromkeys(table.name for table in find_tables(proto)):
        array = np.asarray(numpy_helper.to_array(arrays[name]), np.float32)
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
