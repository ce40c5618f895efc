"""Read any encoder's ONNX graph, whoever exported it; refuse, each with one line, what cannot be quantized here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, inliner, numpy_helper

from ..engines import REFERENCE, load
from ..engines.engine import INPUTS
from ..errors import UserError
from .agree import expect_agreement
from .layers import find_layers
from .plain import LEAST, refuse_old, unfold
from .wiring import initializers, put_in_order, refill, walk

_DOMAINS = {"", "com.microsoft"}
_QUANTIZED = re.compile(r".*([Qq]uant|QLinear|Integer|NBits|Bnb4).*|Q[A-Z].*")
_INTEGERS = {TensorProto.INT64, TensorProto.INT32}
_OTHER_FLOATS = {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
_KNOWN = f"Known: {', '.join(INPUTS)}."


def read_graph(path: str | Path) -> Any:
    """Read an ONNX file, or the prefix of one, as an `onnx.ModelProto` in the form that `unfold` describes.

    Refuses, with a `UserError`, what is no float encoder. The graph given back has run on ONNX Runtime and given the
    file's own logits; takes two loads of the model.
    """
    file = graph_path(path)
    where = str(file)
    proto = _checked(_loaded(file), where)
    engine = load(REFERENCE, file)
    proto = unfold(proto, where)
    _refuse_weights(proto, where)
    expect_agreement(engine, proto, where)
    return proto


def graph_path(path: str | Path) -> Path:
    """The file that a path or prefix means."""
    path = Path(path)
    beside = {ending: path.parent / f"{path.name}{ending}" for ending in ("", ".onnx", ".pdmodel")}
    for ending in ("", ".onnx"):
        if beside[ending].is_file() and beside[ending].suffix != ".pdmodel":
            return beside[ending]
    what, hint = "There is no such ONNX file.", "Looked for it with and without '.onnx'."
    if path.suffix == ".pdmodel" or beside[".pdmodel"].is_file():
        what, hint = "Paddle's graphs (.pdmodel) are not read here.", "Turn it into ONNX with paddle2onnx."
    elif path.is_dir():
        what, hint = "This is a folder; an ONNX graph is expected.", "Name the file in it."
    raise UserError(what, where=str(path), hint=hint)


def _loaded(file: Path) -> Any:
    try:
        proto = onnx.load(file, format="protobuf")
    except DecodeError as error:
        raise UserError("This is not an ONNX file, or a damaged one.", where=str(file)) from error
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        what = f"The ONNX file cannot be read: {str(error).splitlines()[0]}"
        hint = "If its weights lie in a second file, that must be there too, whole."
        raise UserError(what, where=str(file), hint=hint) from error
    if not proto.graph.node:
        raise UserError("This is not an ONNX file: it holds no graph.", where=str(file))
    return proto


def _checked(proto: Any, where: str) -> Any:
    """Refuse what must be refused before anything is run; functions, old habits and other outputs out of the way."""
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    for held in (*proto.opset_import, *walk(proto.graph)):
        held.domain = "" if held.domain == "ai.onnx" else held.domain
    graph = proto.graph
    # Until IR version 4 every initializer was listed as an input too.
    tensors = initializers(graph)
    refill(graph.input, [value for value in graph.input if value.name not in tensors])
    floats = {TensorProto.FLOAT, *_OTHER_FLOATS}
    refill(graph.output, [value for value in graph.output if value.type.tensor_type.elem_type in floats])
    refuse_old(proto, where)
    _refuse_operators(proto, where)
    _refuse_inputs(proto, where)
    if not graph.output:
        raise UserError("The graph has no float output.", where=where)
    put_in_order(graph)
    for value in graph.input:
        for name, dimension in zip(("batch", "length"), value.type.tensor_type.shape.dim, strict=True):
            dimension.dim_param = name
    return proto


def _refuse_operators(proto: Any, where: str) -> None:
    """Refuse graphs that are quantized already, or with operators that ONNX Runtime does not have."""
    for node in walk(proto.graph):
        if _QUANTIZED.fullmatch(node.op_type):
            what = f"The graph is already quantized: it has {node.op_type} nodes."
            raise UserError(what, where=where, hint="Start from the float graph.")
        if node.domain not in _DOMAINS:
            what = f"The graph has an operator of an unknown set: {node.op_type} of '{node.domain}'."
            hint = f"Export it anew with standard operators, opset {LEAST} or newer."
            raise UserError(what, where=where, hint=hint)


def _refuse_inputs(proto: Any, where: str) -> None:
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
            what = f"The input '{value.name}' is of type {_type_name(tensor.elem_type)}."
            raise UserError(what, where=where, hint="It must be int64 or int32.")
        # Some tools write 0 or -1 for a free size.
        sizes = [d.dim_value if d.dim_value > 0 else d.dim_param or "?" for d in tensor.shape.dim]
        if len(sizes) != 2 or any(isinstance(size, int) for size in sizes):
            what = f"The input '{value.name}' is of shape [{', '.join(map(str, sizes))}]."
            hint = "It must be [batch, length] with both free (dynamic axes): export it anew so."
            raise UserError(what, where=where, hint=hint)


def _refuse_weights(proto: Any, where: str) -> None:
    """Refuse weights that are not FP32, or that hold NaN or infinity."""
    biases = {layer.bias for layer in find_layers(proto)}
    for tensor in proto.graph.initializer:
        # A factor or two in float64, which the graph casts, is how older exporters write roots.
        if tensor.data_type in _OTHER_FLOATS and len(tensor.dims) > 1:
            what = f"The weight '{tensor.name}' is {_type_name(tensor.data_type)}."
            raise UserError(what, where=where, hint="Export the graph anew in float32.")
        if tensor.data_type != TensorProto.FLOAT:
            continue
        array = numpy_helper.to_array(tensor)
        # One infinite number alone is what masks are made with.
        alone = array.size == 1 and tensor.name not in biases
        if np.isnan(array).any() or (np.isinf(array).any() and not alone):
            what = f"The weight '{tensor.name}' holds {'NaN' if np.isnan(array).any() else 'infinite values'}."
            raise UserError(what, where=where, hint="Training diverged; export an earlier checkpoint.")


def _type_name(number: int) -> str:
    return str(TensorProto.DataType.Name(number)).lower()
