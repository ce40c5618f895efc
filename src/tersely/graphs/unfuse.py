"""Take apart what optimizers fused (onnxruntime.transformers, optimum's O1 to O4): the same numbers, standard nodes.

A fused node hides weights, biases and tables that could be integers, and other engines do not know it. ONNX Runtime
fuses them again when it loads the graph.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, parser

from .unfuse_attention import RULES as ATTENTION
from .wiring import Names, givers, initializers, input_name, leading_to, opset_of, readers, reads, refill, setting

Rule = Callable[[Any, "NodeWriter"], "list[Any] | None"]
"""A fused node to the nodes that stand for it; None if this one must stay."""

_KINDS = {
    "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64,
}  # fmt: skip
_GELU = (
    f"root = Constant <value_float = {math.sqrt(2)}> ()",
    "one = Constant <value_float = 1.0> ()",
    "half = Constant <value_float = 0.5> ()",
    "scaled = Div (x, root)",
    "error = Erf (scaled)",
    "raised = Add (error, one)",
    "product = Mul (x, raised)",
    "y = Mul (product, half)",
)
_GELU_BY_TANH = (
    f"root = Constant <value_float = {math.sqrt(2 / math.pi)}> ()",
    "third = Constant <value_float = 0.044715> ()",
    "three = Constant <value_float = 3.0> ()",
    "one = Constant <value_float = 1.0> ()",
    "half = Constant <value_float = 0.5> ()",
    "cube = Pow (x, three)",
    "part = Mul (cube, third)",
    "sum = Add (x, part)",
    "scaled = Mul (sum, root)",
    "bent = Tanh (scaled)",
    "raised = Add (bent, one)",
    "product = Mul (x, raised)",
    "y = Mul (product, half)",
)


def unfuse(proto: Any) -> None:
    """Rewrite in place. A fused node in a form that encoders do not have stays, and its weights stay float.

    Constants become initializers.
    """
    _lift_constants(proto.graph)
    for rules in (_RULES, ATTENTION):  # attention needs what leads to its mask in plain nodes
        _apply(proto, rules)
        _lift_constants(proto.graph)


def _lift_constants(graph: Any) -> None:
    kept = []
    for node in graph.node:
        tensor = _held(node) if node.op_type == "Constant" and not node.domain else None
        if tensor is None:
            kept.append(node)
        else:
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
    refill(graph.node, kept)


def _held(node: Any) -> Any:
    """The tensor in a Constant node; None for text and sparse ones."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return copy.deepcopy(attribute.t)
        if attribute.name in _KINDS:
            return numpy_helper.from_array(np.array(helper.get_attribute_value(attribute), _KINDS[attribute.name]))
    return None


def _apply(proto: Any, rules: Mapping[str, Rule]) -> None:
    """Replace, in place, every node whose operator has a rule."""
    writer = NodeWriter(proto)
    nodes = []
    for node in proto.graph.node:
        rule = rules.get(node.op_type) if node.domain == "com.microsoft" else None
        written = rule(node, writer) if rule else None
        nodes += [node] if written is None else written
    refill(proto.graph.node, nodes)


class NodeWriter:
    """Writes standard nodes in the place of a fused one, as short ONNX text; knows the graph that it writes into."""

    def __init__(self, proto: Any) -> None:
        self.opset = opset_of(proto)
        self.initializers, self.givers = initializers(proto.graph), givers(proto.graph)
        # All of an encoder's inputs are [batch, length].
        sizes = [(value.name, d.dim_param) for value in proto.graph.input for d in value.type.tensor_type.shape.dim]
        first: tuple[str, str] = sizes[0] if sizes else ("", "")
        self.ids, self.batch = first
        self.remembered: dict[tuple[Any, ...], str] = {}
        self._read = {*readers(proto.graph), *(value.name for value in proto.graph.output)}
        self._proto, self._names = proto, Names(proto.graph)

    def write(self, node: Any, *lines: str, **bound: str) -> list[Any]:
        """Nodes from lines such as `y = Add (x, bias)`.

        Names that are not bound, or bound to "", are new ones under the node's.
        """
        place = node.name or node.output[0]
        names = {name: value for name, value in bound.items() if value}
        written = []
        for line in lines:
            made = parser.parse_node(line)
            for side in (made.input, made.output):
                for position, name in enumerate(side):
                    if name and name not in names:
                        names[name] = self._new(f"{place}/{name}")
                    side[position] = names.get(name, "")
            made.name = self.name(f"{place}/{made.op_type}")
            written.append(made)
        return written

    def wanted(self, node: Any, position: int) -> str:
        """The name of an output, "" if there is none or nobody reads it."""
        name = str(node.output[position]) if position < len(node.output) else ""
        return name if name in self._read else ""

    def _new(self, wish: str) -> str:
        """A name for a value, in the form that says that nobody chose it."""
        return self.name(f"{wish}_output_0")

    def name(self, wish: str) -> str:
        """A name that is not taken yet."""
        return self._names.new(wish)

    def constant(self, wish: str, array: NDArray[Any]) -> str:
        """Put an initializer in."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(array), self._new(wish))
        self._proto.graph.initializer.append(tensor)
        return str(tensor.name)

    def dimensions(self, value: str) -> list[str | int] | None:
        """Sizes of a value as far as they can be inferred from what leads to it; None if not even their number is.

        Only those nodes are looked at: inference over a whole model copies all its weights.
        """
        graph = self._proto.graph
        nodes = leading_to(graph, [value])
        needed = {value}.union(*map(reads, nodes))
        held = [self.initializers[name] for name in sorted(needed) if name in self.initializers]
        wanted = onnx.ValueInfoProto(name=value)
        part = helper.make_graph(nodes, "part", list(graph.input), [wanted], initializer=held)
        model = helper.make_model(part, opset_imports=list(self._proto.opset_import))
        inferred = onnx.shape_inference.infer_shapes(model).graph
        for found in (*inferred.output, *inferred.input):
            if found.name == value and found.type.tensor_type.HasField("shape"):
                return [d.dim_param or d.dim_value for d in found.type.tensor_type.shape.dim]
        return None


def _gelu(node: Any, writer: NodeWriter) -> list[Any]:
    """With or without a bias; by the error function or, as `FastGelu`, by tanh."""
    by_tanh, bias = node.op_type == "FastGelu", input_name(node, 1)
    lines = ["x = Add (input, bias)"] if bias else []
    if writer.opset >= 20:
        lines.append('y = Gelu <approximate = "tanh"> (x)' if by_tanh else "y = Gelu (x)")
    else:
        lines += _GELU_BY_TANH if by_tanh else _GELU
    bound = {"input" if bias else "x": node.input[0], "bias": bias, "y": node.output[0]}
    return writer.write(node, *lines, **bound)


def _skip_layer_norm(node: Any, writer: NodeWriter) -> list[Any] | None:
    """Inputs: x, skip, gain, shift?, bias?; outputs: normalised, mean, deviation, sum."""
    if writer.wanted(node, 1) or writer.wanted(node, 2):
        return None
    left, right, gain, shift, bias = (input_name(node, position) for position in range(5))
    giver = writer.givers.get(right)
    if giver is not None and giver.op_type == "MatMul":
        left, right = right, left  # the bias belongs to the matmul
    lines = ["biased = Add (left, bias)", "sum = Add (biased, right)"] if bias else ["sum = Add (left, right)"]
    bound = {"left": left, "right": right, "gain": gain, "shift": shift, "bias": bias, "y": node.output[0]}
    return writer.write(node, *lines, _layer_norm_line(node, shift), sum=writer.wanted(node, 3), **bound)


def _layer_norm_line(node: Any, shift: str) -> str:
    epsilon = setting(node, "epsilon", 1e-12)
    return f"y = LayerNormalization <axis = -1, epsilon = {epsilon}> (sum, gain{', shift' if shift else ''})"


def _embed_layer_norm(node: Any, writer: NodeWriter) -> list[Any] | None:
    """Inputs: ids, segments?, words, positions, types?, gain, shift, mask?, position ids?; outputs: y, lengths, sum."""
    names = ("ids", "segments", "words", "positions", "types", "gain", "shift", "mask", "places")
    bound = {name: input_name(node, position) for position, name in enumerate(names)}
    bound |= {"y": node.output[0], "lengths": writer.wanted(node, 1), "sum": writer.wanted(node, 2)}
    if bound["lengths"] and not bound["mask"]:
        return None
    lines = ["word = Gather (words, ids)"]
    if not bound["places"]:
        lines += [
            "shape = Shape (ids)",
            "zero = Constant <value_int = 0> ()",
            "one = Constant <value_int = 1> ()",
            "length = Gather (shape, one)",
            "places = Range (zero, length, one)",
        ]
    segments = bound["segments"]
    lines += ["position = Gather (positions, places)", f"{'two' if segments else 'sum'} = Add (word, position)"]
    if segments:
        lines += ["segment = Gather (types, segments)", "sum = Add (two, segment)"]
    lines.append(_layer_norm_line(node, bound["shift"]))
    if bound["lengths"]:
        lines += ["axes = Constant <value_ints = [1]> ()", "lengths = ReduceSum <keepdims = 0> (mask, axes)"]
    return writer.write(node, *lines, **bound)


def _fused_gemm(node: Any, writer: NodeWriter) -> list[Any] | None:
    activation = setting(node, "activation", "")
    if activation not in {"Relu", "Tanh", "Sigmoid"}:
        return None
    inputs = {f"i{position}": name for position, name in enumerate(node.input) if name}
    lines = (f"g = Gemm ({', '.join(inputs)})", f"y = {activation} (g)")
    gemm, after = writer.write(node, *lines, y=node.output[0], **inputs)
    gemm.attribute.extend(held for held in node.attribute if not held.name.startswith("activation"))
    return [gemm, after]


def _fused_matmul(node: Any, writer: NodeWriter) -> list[Any] | None:
    if any(setting(node, flag, 0) for flag in ("transA", "transBatchA", "transBatchB")):
        return None
    lines, right = [], "right"
    if setting(node, "transB", 0):
        order = _swapped(node.input[1], writer)
        if order is None:
            return None
        lines, right = [f"turned = Transpose <perm = {order}> (right)"], "turned"
    alpha = setting(node, "alpha", 1.0)
    lines.append(f"{'y' if alpha == 1 else 'product'} = MatMul (left, {right})")
    if alpha != 1:
        lines += [f"alpha = Constant <value_float = {alpha}> ()", "y = Mul (product, alpha)"]
    return writer.write(node, *lines, left=node.input[0], right=node.input[1], y=node.output[0])


def _swapped(value: str, writer: NodeWriter) -> list[int] | None:
    """The order of axes with the last two swapped, if the number of axes shows."""
    giver = writer.givers.get(value)
    if value in writer.initializers:
        rank = len(writer.initializers[value].dims)
    elif giver is not None and giver.op_type == "Transpose":
        rank = len(setting(giver, "perm", []))
    else:
        rank = len(writer.dimensions(value) or [])
    return [*range(rank - 2), rank - 1, rank - 2] if rank >= 2 else None


_RULES: dict[str, Rule] = {
    "BiasGelu": _gelu,
    "Gelu": _gelu,
    "FastGelu": _gelu,
    "SkipLayerNormalization": _skip_layer_norm,
    "EmbedLayerNormalization": _embed_layer_norm,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
}
