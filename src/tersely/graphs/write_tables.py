"""Embedding tables in INT8, for every engine: gather the integers and their scales, then multiply."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..quant_map import QuantMap
from .layers import find_tables
from .rewrite import Rewrite, matched, node


def write_tables(rewrite: Rewrite, quant_map: QuantMap) -> None:
    """Dequantize only the rows that are gathered."""
    for table, quantized in matched(find_tables(rewrite.proto), quant_map.tables):
        rows = rewrite.constant(f"{table.name}.rows", quantized.integers)
        scales = rewrite.constant(f"{table.name}.row_scales", quantized.scales[:, None].astype(np.float32))
        codes, numbers, scale = (rewrite.new(f"{table.output}.{part}") for part in ("codes", "float", "scale"))
        nodes = [
            node("Gather", [rows, table.indices], codes, axis=0),
            node("Cast", [codes], numbers, to=TensorProto.FLOAT),
            node("Gather", [scales, table.indices], scale, axis=0),
            node("Mul", [numbers, scale], table.output),
        ]
        rewrite.instead(table.output, nodes)
