"""Compute for the first position alone what a head reads of the first position alone.

A classification head reads [CLS] of the last hidden state. The last layer then needs every position's keys and values,
but only one query, one row of attention and one row of all that follows.

The graph is swept once from its outputs to its inputs. A value is wanted *short* along an axis if all its readers want
its first entry there and no other. A node that works on each entry by itself hands that wish on to what it reads; any
other node wants all of it. Where the two meet stands one `Slice`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx

from .wiring import Names, drop_dead, drop_unread, initializers, input_name, opset_of, reads, refill, setting

Wishes = list[int | None]
"""The axes along which only the first entry of a value is wanted; None: all of it is."""
_UNREAD = -1
_FEW = 16
_ELEMENTWISE = {
    "Abs", "Add", "And", "Cast", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Gelu", "Greater",
    "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual",
    "Log", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Selu",
    "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tanh", "Where", "Xor",
}  # fmt: skip
_NORMALIZING = {"LayerNormalization", "LogSoftmax", "RMSNormalization", "Softmax"}


def keep_first_position(proto: Any) -> int:
    """Shorten a graph's last layer in place; gives the number of weighted matmuls that now see one position.

    0 if the head reads more than the first position: then not a byte has changed. Names of weights and values stay.
    Logits stay too, but for the order in which an engine adds: below 1e-5. Takes a tenth of a second.

    >>> proto = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["": 20]>
    ...     head (float[batch, length, 1] x) => (float[batch, 1] y) <float[1, 1] w = {2.0}, int64 zero = {0}> {
    ...         h = MatMul(x, w)
    ...         y = Gather<axis = 1>(h, zero)
    ...     }''')
    >>> keep_first_position(proto), [node.op_type for node in proto.graph.node]
    (1, ['Slice', 'MatMul', 'Gather'])
    """
    # Before opset 13 Softmax had no single axis, and Squeeze had its axes as an attribute.
    if opset_of(proto) < 13:
        return 0
    facts = _facts(proto)
    plan = _sweep(proto.graph, facts)
    nodes = [proto.graph.node[number] for number in plan.reads]
    weighted = sum(node.op_type in {"MatMul", "Gemm"} and node.input[1] in facts.fixed for node in nodes)
    if not weighted or not plan.cuts:  # with nothing to cut, all of this is short already
        return 0
    _rewrite(proto.graph, plan)
    return weighted


@dataclass(frozen=True)
class _Plan:
    """What becomes of nodes, by their number, and of values, by name.

    `reads`: what shortened nodes want of their inputs; `targets` of shortened Reshapes; `short`: the axis along which a
    value becomes so; `cuts`: values that stay long, with an axis along which a shortened node wants their first entry.
    """

    reads: dict[int, Wishes] = field(default_factory=dict)
    targets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)
    cuts: set[tuple[str, int]] = field(default_factory=set)


def _sweep(graph: Any, facts: _Facts) -> _Plan:
    plan = _Plan()
    wanted: dict[str, Wishes] = defaultdict(list, {value.name: [None] for value in graph.output})
    for number, node in reversed(list(enumerate(graph.node))):
        wishes = {wish for name in node.output if name for wish in wanted[name]}
        if not wishes:
            continue
        axis = wishes.pop() if len(wishes) == 1 else None
        wants = None if axis is None else _wants_of(node, axis, facts)
        if axis is None or wants is None:
            wants = [1 if position == 0 and _takes_first(node, facts) else None for position in range(len(node.input))]
        else:
            plan.reads[number] = wants
            plan.short.update(dict.fromkeys(node.output, axis))
            if node.op_type == "Reshape":
                plan.targets[number] = _refit(node, axis, facts)[1]
        for position, name in enumerate(node.input):
            wants[position] = facts.unless_one(name, wants[position])
            if wants[position] != _UNREAD:
                wanted[name].append(wants[position])
        for name in reads(node) - set(node.input):  # what the branches of an If read
            wanted[name].append(None)
    for number, wants in plan.reads.items():
        for name, wish in zip(graph.node[number].input, wants, strict=True):
            if wish is not None and wish != _UNREAD and plan.short.get(name) != wish:
                plan.cuts.add((name, wish))
    return plan


def _wants_of(node: Any, axis: int, facts: _Facts) -> Wishes | None:
    """What a node wants of its inputs to give the first entry along an axis; None if it needs others for it.

    Where inputs are broadcast, the first entry of each is right whether it has many there or one.
    """
    ranks = [facts.rank(name) for name in node.input]
    if node.domain or min(ranks, default=-1) < 0:
        return None
    op, rank, others = node.op_type, max(ranks), [None] * (len(ranks) - 1)
    own = setting(node, "axis", -1 if op in _NORMALIZING else 0) % max(ranks[0], 1)
    if op in _ELEMENTWISE:
        return [axis - rank + its if axis >= rank - its else None for its in ranks]
    if op == "MatMul" and min(ranks) > 1 and (axis == rank - 2 or axis < rank - ranks[1]):
        return [axis - rank + ranks[0], None]
    if op == "Gemm" and axis == 0 and not setting(node, "transA", 0):
        return [0, None, *(0 if its == 2 else None for its in ranks[2:])]
    if op in _NORMALIZING and axis < own and max(ranks[1:], default=0) < rank - axis:
        return [axis, *others]
    if op == "Transpose":
        return [setting(node, "perm", list(range(rank))[::-1])[axis]]
    if op == "Concat" and axis != own:
        return [axis for _ in ranks]
    if op == "Reshape":
        input_axis = _refit(node, axis, facts)[0]
        return None if input_axis is None else [input_axis, _UNREAD]
    if (op == "Split" and axis != own) or (op == "Slice" and axis not in facts.axes(node, 3, [axis])):
        return [axis, *others]
    if op.startswith("Reduce") and axis < min(facts.axes(node, 1, [axis])):
        return [axis, *others]
    if op == "Squeeze" and (gone := facts.axes(node, 1, [])):
        return [[kept for kept in range(rank) if kept not in gone][axis], None]
    return None


def _refit(node: Any, axis: int, facts: _Facts) -> tuple[int | None, tuple[int, ...]]:
    """The input's axis that a Reshape leaves as it is, to become one of its output's, and the target with 1 there."""
    before, after = facts.sizes[node.input[0]], facts.sizes[node.output[0]]
    pairs = list(zip(before, after, strict=True))
    known = not any(None in sizes for sizes in (*before, *after))
    # As many entries before the axis, and as many along it: row by row, they are the same ones.
    inputs = [
        place
        for place in range(len(before[0]))
        if known and all(b[place] == a[axis] and prod(b[:place]) == prod(a[:axis]) for b, a in pairs)
    ]
    target = [after[0][place] if len({a[place] for a in after}) == 1 else -1 for place in range(len(after[0]))]
    for place in set(range(min(len(before[0]), len(target)))) - set(inputs):
        if target[place] == -1 and all(b[place] == a[place] for b, a in pairs):
            target[place] = 0  # what the input has there
    target[axis] = 1
    return (inputs[0] if inputs and target.count(-1) < 2 else None), tuple(target)


def _takes_first(node: Any, facts: _Facts) -> bool:
    """Whether a node reads of its first input nothing but the first entry along axis 1."""
    if node.domain or node.op_type not in {"Gather", "Slice"} or (rank := facts.rank(node.input[0])) < 2:
        return False
    values = [facts.constants.get(name) for name in node.input[1:]]
    if node.op_type == "Slice":  # from, to, axis, step
        return values in ([[0], [1], [1]], [[0], [1], [1], [1]])
    return values == [[0]] and setting(node, "axis", 0) in {1, 1 - rank}


def _rewrite(graph: Any, plan: _Plan) -> None:
    names = Names(graph)
    constants: dict[tuple[int, ...], str] = {}
    cut: dict[tuple[str, int], str] = {}
    nodes = []

    def constant(*values: int) -> str:
        if values not in constants:
            constants[values] = names.new("first_position_" + "_".join(map(str, values)))
            graph.initializer.append(onnx.numpy_helper.from_array(np.array(values, np.int64), constants[values]))
        return constants[values]

    for number, node in enumerate(graph.node):
        for position, axis in enumerate(plan.reads.get(number, ())):
            name = str(node.input[position])
            if axis == _UNREAD:
                node.input[position] = constant(*plan.targets[number])
                refill(node.attribute, [held for held in node.attribute if held.name != "allowzero"])
            elif axis is not None and (name, axis) in plan.cuts:
                if (name, axis) not in cut:
                    cut[name, axis] = names.new(f"{name}_first")
                    inputs = [name, constant(0), constant(1), constant(axis)]
                    nodes.append(onnx.helper.make_node("Slice", inputs, [cut[name, axis]], name=cut[name, axis]))
                node.input[position] = cut[name, axis]
        nodes.append(node)
    refill(graph.node, nodes)
    drop_dead(graph)  # the sums that led to a Reshape's old target
    drop_unread(graph)
    del graph.value_info[:]  # shapes that no longer hold


@dataclass(frozen=True)
class _Facts:
    """By value: its sizes for two shapes of the graph's inputs (None: not known), and its entries if few and constant.

    `fixed` are those that no input changes: weights, and what is made of them alone.
    """

    sizes: dict[str, list[tuple[Any, ...]]]
    constants: dict[str, list[Any]]
    fixed: set[str]

    def rank(self, name: str) -> int:
        """-1 if it is not known."""
        return len(self.sizes[name][0]) if name in self.sizes else -1

    def unless_one(self, name: str, axis: int | None) -> int | None:
        """The axis, unless the value always has one entry there: then it is wanted as it is."""
        single = axis is not None and axis != _UNREAD and all(sizes[axis] == 1 for sizes in self.sizes[name])
        return None if single else axis

    def axes(self, node: Any, position: int, unknown: list[int]) -> list[int]:
        """Those that an input or the attribute names, if they are constant."""
        name = input_name(node, position)
        axes = self.constants.get(name) or setting(node, "axes", None) or unknown
        return [axis % self.rank(node.input[0]) for axis in axes]


def _facts(proto: Any) -> _Facts:
    tensors = initializers(proto.graph)
    fixed = {"", *tensors}  # the nameless is an input left out
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
        if (node.input or node.op_type == "Constant") and fixed.issuperset(node.input):
            fixed.update(node.output)
    few = {name: t for name, t in tensors.items() if prod(t.dims) <= _FEW and t.data_location == t.DEFAULT}
    constants = {name: onnx.numpy_helper.to_array(tensor).ravel().tolist() for name, tensor in few.items()}
    # Shapes that stay unknown for "batch" and "length" can be worked out for numbers, and what holds for two pairs of
    # them is no coincidence. They are small: a model may take no more than a few positions.
    found = [_sizes(proto, start, step) for start, step in ((3, 4), (5, 6))]
    sizes = {name: [sizes[name] for sizes in found] for name in found[0].keys() & found[1]}
    return _Facts(sizes | {"": [()]}, constants, fixed)


def _sizes(proto: Any, start: int, step: int) -> dict[str, tuple[Any, ...]]:
    """The sizes of all values whose rank is known, with start, start + step, … for those that the inputs leave open."""
    bare = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions)
    bare.graph.node.extend(proto.graph.node)
    bare.graph.input.extend(proto.graph.input)
    bare.graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in proto.graph.output)
    inputs = {value.name for value in proto.graph.input}
    for tensor in proto.graph.initializer:
        if prod(tensor.dims) <= _FEW:
            bare.graph.initializer.append(tensor)
        elif tensor.name not in inputs:  # of weights the shape alone: inference copies what it gets
            bare.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    numbers: dict[str, int] = {}
    for value in bare.graph.input:
        for place, size in enumerate(value.type.tensor_type.shape.dim):
            if not size.HasField("dim_value"):
                size.dim_value = numbers.setdefault(size.dim_param or f"axis {place}", start + step * len(numbers))
    inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
    return {tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer} | {
        value.name: tuple(size.dim_value if size.HasField("dim_value") else None for size in type_.shape.dim)
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
        if (type_ := value.type.tensor_type).HasField("shape")
    }
