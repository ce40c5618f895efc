"""Read any encoder's ONNX graph, whoever exported it, into the one form that is looked at and rewritten here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, inliner

from ..engines import REFERENCE, load
from ..errors import UserError
from .agree import expect_agreement
from .clean import clean
from .fold import fold
from .opset import raise_opset, refuse_old
from .refuse import refuse_inputs, refuse_operators, refuse_weights
from .speaking import give_names
from .unfuse import unfuse
from .wiring import drop_dead, put_in_order, walk

_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}


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
    refuse_weights(proto, where)
    expect_agreement(engine, proto, where)
    return proto


def unfold(proto: Any, where: str = "") -> Any:
    """Bring a graph to plain form: standard nodes, weights as initializers [in, out] with speaking names.

    Fused nodes are taken apart, constants lifted, transpositions of weights done beforehand; nodes that no float
    output needs are gone, and so are inner shapes. Operator set 17 or newer. What `find_layers` then finds is all that
    there is. The graph given is used up. A graph that `export_onnx` wrote also wants this: its Gemm nodes hold their
    weights transposed.

    >>> from onnx import parser
    >>> graph = "g (float[n, 2] x) => (float[n, 1] y) <float[1, 2] w = {3, 4}> { y = Gemm <transB = 1> (x, w) }"
    >>> proto = unfold(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}'))
    >>> proto.graph.initializer[0].name, list(proto.graph.initializer[0].dims)
    ('w', [2, 1])
    """
    proto = raise_opset(proto, where)
    unfuse(proto)
    fold(proto)
    drop_dead(proto.graph)
    give_names(proto)
    clean(proto, [value.name for value in proto.graph.input], [value.name for value in proto.graph.output])
    return proto


def graph_path(path: str | Path) -> Path:
    """The file that a path or prefix means."""
    path = Path(path)
    beside = {ending: path.parent / f"{path.name}{ending}" for ending in ("", ".onnx", ".pdmodel")}
    for ending in ("", ".onnx"):
        if beside[ending].is_file() and beside[ending].suffix != ".pdmodel":
            return beside[ending]
    if path.suffix == ".pdmodel" or beside[".pdmodel"].is_file():
        raise UserError(
            "Paddle's graphs (.pdmodel) are not read here.", where=str(path), hint="Turn it into ONNX with paddle2onnx."
        )
    if path.is_dir():
        raise UserError("This is a folder; an ONNX graph is expected.", where=str(path), hint="Name the file in it.")
    raise UserError("There is no such ONNX file.", where=str(path), hint="Looked for it with and without '.onnx'.")


def _loaded(file: Path) -> Any:
    try:
        proto = onnx.load(file, format="protobuf")
    except DecodeError as error:
        raise UserError("This is not an ONNX file, or a damaged one.", where=str(file)) from error
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"The ONNX file cannot be read: {reason}",
            where=str(file),
            hint="If its weights lie in a second file, that must be there too, whole.",
        ) from error
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
    held = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in held]
    outputs = [value for value in graph.output if value.type.tensor_type.elem_type in _FLOATS]
    del graph.input[:], graph.output[:]
    graph.input.extend(inputs)
    graph.output.extend(outputs)
    refuse_old(proto, where)
    refuse_operators(proto, where)
    refuse_inputs(proto, where)
    if not outputs:
        raise UserError("The graph has no float output.", where=where)
    put_in_order(graph)
    for value in graph.input:
        for name, dimension in zip(("batch", "length"), value.type.tensor_type.shape.dim, strict=True):
            dimension.dim_param = name
    return proto
