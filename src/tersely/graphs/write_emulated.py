"""INT8 sums in floats: what a graph gives on CPUs that do not saturate, computed on one that does.

Graphs for `--cpu_classes vnni` hold full 8-bit weights. Scored as they are on an older CPU, they would be blamed for
its 16-bit sums. Codes are the same here, and only their products are rounded as those of FP32 models are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from .rewrite import Rewrite, node


def write_emulated(graph: Path, place: Path) -> Path:
    """Write a graph with every integer product as one of floats; runs as fast as the FP32 model."""
    proto = onnx.load(graph)
    rewrite = Rewrite(proto)
    for op in proto.graph.node:
        if op.op_type == "DequantizeLinear":
            rewrite.instead(op.output[0], _numbers(rewrite, *op.input, output=op.output[0]))
        elif op.op_type == "MatMulIntegerToFloat":
            rewrite.instead(op.output[0], _product(rewrite, op))
    place.parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(rewrite.finish(), place)
    return place


def _product(rewrite: Rewrite, op: Any) -> list[Any]:
    """(A, B, step of A, step of B, zero of A, zero of B, bias), the last three optional."""
    inputs = [*op.input, "", "", ""][:7]
    left, right, product = (rewrite.new(f"{op.output[0]}.{part}") for part in ("left", "right", "product"))
    output = op.output[0]
    nodes = _numbers(rewrite, inputs[0], inputs[2], inputs[4], output=left)
    nodes += _numbers(rewrite, inputs[1], inputs[3], inputs[5], output=right)
    if not inputs[6]:
        return [*nodes, node("MatMul", [left, right], output)]
    return [*nodes, node("MatMul", [left, right], product), node("Add", [product, inputs[6]], output)]


def _numbers(rewrite: Rewrite, codes: str, step: str, zero: str = "", *, output: str) -> list[Any]:
    """(codes - zero) · step. Not as DequantizeLinear: ONNX Runtime would make an integer product of it again."""
    number, point, shifted = (rewrite.new(f"{output}.{part}") for part in ("codes", "zero", "shifted"))
    nodes = [node("Cast", [codes], number, to=TensorProto.FLOAT)]
    if zero:
        nodes += [node("Cast", [zero], point, to=TensorProto.FLOAT), node("Sub", [number, point], shifted)]
    return [*nodes, node("Mul", [shifted if zero else number, step], output)]
