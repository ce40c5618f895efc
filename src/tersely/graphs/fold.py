"""Bring every weight into the open: constants as initializers, transpositions and casts done beforehand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .wiring import Names, constants, given, readers, rename, replace_nodes, setting

# What only lays numbers out anew. Nothing that computes is folded: DeBERTa's normalised relative positions must stay
# a table of this size, not become one per layer.
_LAYOUT = {"Transpose", "Cast", "Reshape", "Squeeze", "Unsqueeze"}
_KINDS = {
    "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64,
}  # fmt: skip


def fold(proto: Any) -> None:
    """Fold in place. A weight that is only read transposed is kept transposed under its own name.

    One that is read both ways (a table that is also multiplied with) is there twice: `….weight` and
    `….weight.transposed`. Weights that several nodes read stay one.
    """
    lift_constants(proto.graph)
    _straighten_gemm(proto.graph)
    origins = _fold_layout(proto)
    _take_over_names(proto.graph, origins)


def lift_constants(graph: Any) -> None:
    """Make initializers of Constant nodes."""
    kept = []
    for node in graph.node:
        tensor = _held(node) if node.op_type == "Constant" and not node.domain else None
        if tensor is None:
            kept.append(node)
        else:
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
    replace_nodes(graph, kept)


def _held(node: Any) -> Any:
    """The tensor in a Constant node; None for text and sparse ones."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return onnx.TensorProto.FromString(attribute.t.SerializeToString())
        if attribute.name in _KINDS:
            value = helper.get_attribute_value(attribute)
            return numpy_helper.from_array(np.array(value, _KINDS[attribute.name]))
    return None


def _straighten_gemm(graph: Any) -> None:
    """Let every Gemm read its weight as [in, out], through a transposition that is then folded."""
    names, tensors, nodes = Names(graph), constants(graph), []
    for node in graph.node:
        weight = given(node, 1)
        if node.op_type == "Gemm" and setting(node, "transB", 0) and weight in tensors:
            transposed = names.new(f"{weight}.transposed")
            nodes.append(helper.make_node("Transpose", [weight], [transposed], perm=[1, 0]))
            node.input[1] = transposed
            _remove_setting(node, "transB")
        nodes.append(node)
    replace_nodes(graph, nodes)


def _remove_setting(node: Any, name: str) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)


def _fold_layout(proto: Any) -> dict[str, tuple[str, bool]]:
    """Fold in place; gives for each new initializer the weight that it comes from and whether it is that turned."""
    graph = proto.graph
    tensors = constants(graph)
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
            same[output] = done.setdefault(_key(node), output)
            if same[output] == output:
                tensors[output] = _evaluate(node, tensors, proto.opset_import)
                graph.initializer.append(tensors[output])
                weight, turned = origins.get(node.input[0], (node.input[0], False))
                origins[output] = (weight, turned ^ (node.op_type == "Transpose"))
    replace_nodes(graph, kept)
    rename(graph, same)  # inside branches, which were not looked at above
    return origins


def _key(node: Any) -> bytes:
    bare = onnx.NodeProto(op_type=node.op_type, input=node.input, attribute=node.attribute)
    return bytes(bare.SerializeToString(deterministic=True))


def _evaluate(node: Any, tensors: dict[str, Any], opsets: Any) -> Any:
    held = [tensors[name] for name in dict.fromkeys(node.input) if name]
    graph = helper.make_graph([node], "fold", [], [onnx.ValueInfoProto(name=node.output[0])], initializer=held)
    (array,) = ReferenceEvaluator(helper.make_model(graph, opset_imports=list(opsets))).run(None, {})
    return numpy_helper.from_array(np.ascontiguousarray(array), node.output[0])


def _take_over_names(graph: Any, origins: dict[str, tuple[str, bool]]) -> None:
    """Name what was folded after the weight it comes from, now that it is known who still reads that."""
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
    for place in reversed(range(len(graph.initializer))):  # one by one: a new list would copy all weights
        tensor = graph.initializer[place]
        if tensor.name in read:
            tensor.name = new.get(tensor.name, tensor.name)
        else:
            del graph.initializer[place]
    rename(graph, new)
