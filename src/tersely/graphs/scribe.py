"""Write standard nodes in the place of a fused one, as short ONNX text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import parser

from .wiring import Names, constants, givers, readers, reads, replace_nodes

Rule = Callable[[Any, "Scribe"], "list[Any] | None"]
"""A fused node to the nodes that stand for it; None if this one must stay."""


def apply(proto: Any, rules: Mapping[str, Rule]) -> None:
    """Replace, in place, every node whose operator has a rule."""
    scribe = Scribe(proto)
    nodes = []
    for node in proto.graph.node:
        rule = rules.get(node.op_type) if node.domain == "com.microsoft" else None
        written = rule(node, scribe) if rule else None
        nodes += [node] if written is None else written
    replace_nodes(proto.graph, nodes)


class Scribe:
    """Knows the graph that a rule writes into."""

    def __init__(self, proto: Any) -> None:
        self.opset = next(held.version for held in proto.opset_import if not held.domain)
        self.constants, self.givers = constants(proto.graph), givers(proto.graph)
        # All of an encoder's inputs are [batch, length].
        sizes = [(value.name, d.dim_param) for value in proto.graph.input for d in value.type.tensor_type.shape.dim]
        self.ids: str = sizes[0][0] if sizes else ""
        self.batch: str = sizes[0][1] if sizes else ""
        self.remembered: dict[tuple[Any, ...], str] = {}
        self._read = {*readers(proto.graph), *(value.name for value in proto.graph.output)}
        self._proto, self._names = proto, Names(proto.graph)

    def write(self, node: Any, *lines: str, **bound: str) -> list[Any]:
        """Nodes from lines such as `y = Add (x, bias)`; names that are not bound are new ones under the node's."""
        place = node.name or node.output[0]
        names = dict(bound)
        written = []
        for line in lines:
            made = parser.parse_node(line)
            for side in (made.input, made.output):
                for position, name in enumerate(side):
                    if name and name not in names:
                        names[name] = self.new(f"{place}/{name}")
                    side[position] = names.get(name, "")
            made.name = self.name(f"{place}/{made.op_type}")
            written.append(made)
        return written

    def wanted(self, node: Any, position: int) -> str:
        """The name of an output, "" if there is none or nobody reads it."""
        name = str(node.output[position]) if position < len(node.output) else ""
        return name if name in self._read else ""

    def new(self, wish: str) -> str:
        """A name for a value, in the form that says that nobody chose it."""
        return self.name(f"{wish}_output_0")

    def name(self, wish: str) -> str:
        """A name that is not taken yet."""
        return self._names.new(wish)

    def hold(self, wish: str, array: NDArray[Any]) -> str:
        """Put an initializer in."""
        tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array), self.new(wish))
        self._proto.graph.initializer.append(tensor)
        return str(tensor.name)

    def dimensions(self, value: str) -> list[str | int] | None:
        """Sizes of a value as far as they can be inferred from what leads to it; None if not even their number is.

        Only those nodes are looked at: inference over a whole model copies all its weights.
        """
        graph = self._proto.graph
        needed: set[str] = {value}
        nodes: list[Any] = []
        for node in reversed(graph.node):
            if needed & set(node.output):
                nodes.insert(0, node)
                needed |= reads(node)
        held = [self.constants[name] for name in sorted(needed) if name in self.constants]
        wanted = onnx.ValueInfoProto(name=value)
        part = onnx.helper.make_graph(nodes, "part", list(graph.input), [wanted], initializer=held)
        model = onnx.helper.make_model(part, opset_imports=list(self._proto.opset_import))
        inferred = onnx.shape_inference.infer_shapes(model).graph
        for found in (*inferred.output, *inferred.input):
            if found.name == value and found.type.tensor_type.HasField("shape"):
                return [d.dim_param or d.dim_value for d in found.type.tensor_type.shape.dim]
        return None
