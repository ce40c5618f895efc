"""Embedding tables in INT8, for every engine: gather the integers and their scales, then multiply."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..quant_map import QuantMap
from .layers import find_tables
from .rewrite import Rewrite, node


def write_tables(rewrite: Rewrite, quant_map: QuantMap) -> None:
    """Dequantize only the rows that are gathered."""
    for table in find_tables(rewrite.proto):
        if table.name not in quant_map.tables:
            continue
        quantized = quant_map.tables[table.name]
        integers = rewrite.constant(f"{table.name}.int8", quantized.integers)
        scales = rewrite.constant(f"{table.name}.scales", quantized.scales[:, None].astype(np.float32))
        base = table.output
        nodes = [
            node("Gather", [integers, table.indices], f"{base}.codes", axis=0),
            node("Cast", [f"{base}.codes"], f"{base}.float", to=TensorProto.FLOAT),
            node("Gather", [scales, table.indices], f"{base}.scale", axis=0),
            node("Mul", [f"{base}.float", f"{base}.scale"], base),
        ]
        rewrite.instead(table.output, nodes)
