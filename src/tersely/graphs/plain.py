"""Bring any encoder's graph to plain form: standard nodes, weights as initializers [in, out] by their known names.

Every weight comes into the open: constants become initializers, transpositions and casts are done beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator

from ..errors import Failure, UserError
from .unfuse import unfuse
from .weight_names import give_names
from .wiring import (
    Names,
    drop_dead,
    drop_unread,
    initializers,
    input_name,
    opset_of,
    readers,
    refill,
    rename,
    setting,
    walk,
)  # fmt: skip

OLDEST = 11
LEAST = 17
"""The first operator set with LayerNormalization; 13 brought the quantizers with a scale per channel."""
_PLAIN = 13
_ANEW = f"Export it anew with opset {LEAST} or newer."
# What only lays numbers out anew. Nothing that computes is folded: DeBERTa's normalised relative positions must stay
# a table of this size, not become one per layer.
_LAYOUT = {"Transpose", "Cast", "Reshape", "Squeeze", "Unsqueeze"}


def unfold(proto: Any, where: str = "") -> Any:
    """Bring a graph to plain form: standard nodes, weights as initializers [in, out] under names that users know.

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
    proto = _raise_opset(proto, where)
    unfuse(proto)
    _straighten_gemm(proto.graph)
    _take_over_names(proto.graph, _fold_layout(proto))
    drop_dead(proto.graph)
    give_names(proto)
    clean(proto, [value.name for value in proto.graph.input], [value.name for value in proto.graph.output])
    return proto


def clean(proto: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Clean a graph in place of what is stale, private or different each time: inner shapes, stack traces, leftovers.

    The exporter's inner shapes are stale: with them `quantize_dynamic` refuses the file ("Inferred shape and existing
    shape differ"). Every tool infers them anew, so there are none.
    """
    graph = proto.graph
    for values, names in ((graph.input, inputs), (graph.output, outputs)):
        found = [value.name for value in values]
        if found != list(names):
            raise Failure(
                f"The exported graph has {', '.join(found)} where {', '.join(names)} were expected.",
                hint="Name the model's inputs and outputs as its forward has them.",
            )
        for value in values:
            _name_dimensions(value.type.tensor_type.shape.dim)
    del graph.value_info[:]
    drop_unread(graph)
    for message in (proto, *_messages(graph)):
        # Stack traces, class paths and versions of the machine that exported: private, and different everywhere.
        message.doc_string = ""
        del message.metadata_props[:]
    used = {"", *(node.domain for node in walk(graph))}
    refill(proto.opset_import, [opset for opset in proto.opset_import if opset.domain in used])
    graph.name, proto.producer_name, proto.producer_version = "model", "tersely", ""


def _name_dimensions(dimensions: Sequence[Any]) -> None:
    for name, dimension in zip(("batch", "length"), dimensions, strict=False):
        if not dimension.HasField("dim_value"):
            dimension.dim_param = name
    for dimension in dimensions[2:]:
        if dimension.HasField("dim_param"):
            dimension.ClearField("dim_param")


def _messages(graph: Any) -> Iterator[Any]:
    """Everything in a graph that can carry remarks."""
    yield graph
    yield from (*graph.input, *graph.output, *graph.initializer)
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            attribute.doc_string = ""  # has remarks but no metadata
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _messages(inner)


def refuse_old(proto: Any, where: str) -> None:
    """Refuse operator sets that cannot be raised."""
    if opset_of(proto) < OLDEST:
        what = f"The graph's operator set is {opset_of(proto)}, which is too old."
        raise UserError(what, where=where, hint=_ANEW)


def _raise_opset(proto: Any, where: str) -> Any:
    """Give the graph with operator set 17 or newer; older than 11 is refused."""
    refuse_old(proto, where)
    version = opset_of(proto)
    if version < _PLAIN:
        # Until 13 axes are attributes, and a Softmax over one axis flattens the others.
        try:
            proto = version_converter.convert_version(proto, _PLAIN)
        except RuntimeError as error:
            what = f"The graph's operator set is {version} and cannot be raised."
            raise UserError(what, where=where, hint=_ANEW) from error
    if version < LEAST:
        # From 13 to 17 types were added, but no operator of an encoder changed its meaning. (onnx's own converter
        # stumbles there over the LayerNormalization that ONNX Runtime writes into older sets.)
        next(opset for opset in proto.opset_import if not opset.domain).version = LEAST
    proto.ir_version = max(proto.ir_version, 8)
    return proto


def _straighten_gemm(graph: Any) -> None:
    """Let every Gemm read its weight as [in, out], through a transposition that is then folded."""
    names, tensors, nodes = Names(graph), initializers(graph), []
    for node in graph.node:
        weight = input_name(node, 1)
        if node.op_type == "Gemm" and setting(node, "transB", 0) and weight in tensors:
            transposed = names.new(f"{weight}.transposed")
            nodes.append(helper.make_node("Transpose", [weight], [transposed], perm=[1, 0]))
            node.input[1] = transposed
            refill(node.attribute, [attribute for attribute in node.attribute if attribute.name != "transB"])
        nodes.append(node)
    refill(graph.node, nodes)


def _fold_layout(proto: Any) -> dict[str, tuple[str, bool]]:
    """Fold in place; gives for each new initializer the weight that it comes from and whether it is that turned."""
    graph = proto.graph
    tensors = initializers(graph)
    fixed = {value.name for value in graph.output}
    same: dict[str, str] = {}
    done: dict[bytes, str] = {}
    origins: dict[str, tuple[str, bool]] = {}
    kept = []
    for node in graph.node:
        for position, name in enumerate(node.input):
            node.input[position] = same.get(name, name)
        output = node.output[0] if node.output else ""
        if node.domain or output in fixed:
            kept.append(node)
        elif node.op_type == "Identity":
            same[output] = node.input[0]
        elif node.op_type not in _LAYOUT or not all(name in tensors for name in node.input if name):
            kept.append(node)
        else:
            bare = onnx.NodeProto(op_type=node.op_type, input=node.input, attribute=node.attribute)
            same[output] = done.setdefault(bare.SerializeToString(deterministic=True), output)
            if same[output] == output:
                tensors[output] = _evaluate(node, tensors, proto.opset_import)
                graph.initializer.append(tensors[output])
                weight, turned = origins.get(node.input[0], (node.input[0], False))
                origins[output] = (weight, turned ^ (node.op_type == "Transpose"))
    refill(graph.node, kept)
    rename(graph, same)  # inside branches, which were not looked at above
    return origins


def _evaluate(node: Any, tensors: dict[str, Any], opsets: Any) -> Any:
    held = [tensors[name] for name in dict.fromkeys(node.input) if name]
    graph = helper.make_graph([node], "fold", [], [onnx.ValueInfoProto(name=node.output[0])], initializer=held)
    (array,) = ReferenceEvaluator(helper.make_model(graph, opset_imports=list(opsets))).run(None, {})
    return numpy_helper.from_array(np.ascontiguousarray(array), node.output[0])


def _take_over_names(graph: Any, origins: dict[str, tuple[str, bool]]) -> None:
    """Name what was folded after the weight it comes from, now that it is known who still reads that.

    A weight that is only read transposed is kept transposed under its own name. One that is read both ways (a table
    that is also multiplied with) is there twice: `….weight` and `….weight.transposed`. Weights that several nodes read
    stay one.
    """
    names = Names(graph)
    read = {*readers(graph), *(value.name for value in graph.output)}
    used = {folded: origin for folded, origin in origins.items() if folded in read}
    siblings = Counter(weight for weight, _ in used.values())
    new = {}
    for folded, (weight, turned) in used.items():
        if weight not in read and siblings[weight] == 1:
            new[folded] = weight
        elif turned and folded != f"{weight}.transposed":
            new[folded] = names.new(f"{weight}.transposed")
    drop_unread(graph)
    rename(graph, new)
