"""Refuse graphs that cannot be quantized here, each with one line that says why."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from ..engines.engine import INPUTS
from ..errors import UserError
from .layers import find_layers
from .opset import LEAST
from .wiring import walk

_DOMAINS = {"", "com.microsoft"}
_QUANTIZED = re.compile(r".*([Qq]uant|QLinear|Integer|NBits|Bnb4).*|Q[A-Z].*")
_INTEGERS = {TensorProto.INT64, TensorProto.INT32}
_OTHER_FLOATS = {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
_KNOWN = f"Known: {', '.join(INPUTS)}."


def refuse_operators(proto: Any, where: str) -> None:
    """Refuse graphs that are quantized already, or with operators that ONNX Runtime does not have."""
    for node in walk(proto.graph):
        if _QUANTIZED.fullmatch(node.op_type):
            raise UserError(
                f"The graph is already quantized: it has {node.op_type} nodes.",
                where=where,
                hint="Start from the float graph.",
            )
        if node.domain not in _DOMAINS:
            raise UserError(
                f"The graph has an operator of an unknown set: {node.op_type} of '{node.domain}'.",
                where=where,
                hint=f"Export it anew with standard operators, opset {LEAST} or newer.",
            )


def refuse_inputs(proto: Any, where: str) -> None:
    """Refuse inputs that an encoder does not have, or that are not integers [batch, length] of any size."""
    names = [value.name for value in proto.graph.input]
    for name in names:
        if name not in INPUTS:
            raise UserError(f"The graph has an unexpected input '{name}'.", where=where, hint=_KNOWN)
    if "input_ids" not in names:
        raise UserError("The graph has no input 'input_ids'.", where=where, hint=_KNOWN)
    for value in proto.graph.input:
        tensor = value.type.tensor_type
        if tensor.elem_type not in _INTEGERS:
            kind = TensorProto.DataType.Name(tensor.elem_type).lower()
            raise UserError(
                f"The input '{value.name}' is of type {kind}.", where=where, hint="It must be int64 or int32."
            )
        # Some tools write 0 or -1 for a free size.
        sizes = [d.dim_value if d.dim_value > 0 else d.dim_param or "?" for d in tensor.shape.dim]
        if len(sizes) != 2 or any(isinstance(size, int) for size in sizes):
            shown = ", ".join(map(str, sizes))
            raise UserError(
                f"The input '{value.name}' is of shape [{shown}].",
                where=where,
                hint="It must be [batch, length] with both free (dynamic axes): export it anew so.",
            )


def refuse_weights(proto: Any, where: str) -> None:
    """Refuse weights that are not FP32, or that hold NaN or infinity."""
    biases = {layer.bias for layer in find_layers(proto)}
    for tensor in proto.graph.initializer:
        # A factor or two in float64, which the graph casts, is how older exporters write roots.
        if tensor.data_type in _OTHER_FLOATS and len(tensor.dims) > 1:
            kind = TensorProto.DataType.Name(tensor.data_type).lower()
            raise UserError(
                f"The weight '{tensor.name}' is {kind}.", where=where, hint="Export the graph anew in float32."
            )
        if tensor.data_type != TensorProto.FLOAT:
            continue
        array = numpy_helper.to_array(tensor)
        # One infinite number alone is what masks are made with.
        alone = array.size == 1 and tensor.name not in biases
        if np.isnan(array).any() or (np.isinf(array).any() and not alone):
            kind = "NaN" if np.isnan(array).any() else "infinite values"
            raise UserError(
                f"The weight '{tensor.name}' holds {kind}.",
                where=where,
                hint="Training diverged; export an earlier checkpoint.",
            )
