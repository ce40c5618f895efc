"""Replace nodes of a graph by others: the little that all graph writers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"


class Rewrite:
    """A graph being rewritten: a copy, so that the one it came from stays as it is.

    A node is known by its first output, which is unique in a graph.
    """

    def __init__(self, proto: Any) -> None:
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(proto)
        self._arrays = {tensor.name: tensor for tensor in self.proto.graph.initializer}
        self._before: dict[str, list[Any]] = {}
        self._instead: dict[str, list[Any]] = {}

    def array(self, name: str) -> NDArray[Any]:
        """What an initializer holds."""
        return np.asarray(numpy_helper.to_array(self._arrays[name]))

    def has(self, name: str) -> bool:
        """Whether an initializer of this name is there."""
        return name in self._arrays

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Put an initializer in; an equal name means an equal array."""
        if name not in self._arrays:
            tensor = numpy_helper.from_array(np.ascontiguousarray(array), name)
            self._arrays[name] = tensor
            self.proto.graph.initializer.append(tensor)
        return name

    def before(self, output: str, nodes: Sequence[Any]) -> None:
        """Put nodes before the one that gives this output."""
        self._before.setdefault(output, []).extend(nodes)

    def instead(self, output: str, nodes: Sequence[Any]) -> None:
        """Put nodes in the place of the one that gives this output."""
        self._instead[output] = list(nodes)

    def finish(self) -> Any:
        """Make the new graph: nodes in order, initializers that are still read, the operator sets that are used."""
        graph = self.proto.graph
        nodes = []
        for node in graph.node:
            nodes += self._before.get(node.output[0], [])
            nodes += self._instead.get(node.output[0], [node])
        del graph.node[:]
        graph.node.extend(nodes)
        used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
        kept = [tensor for tensor in graph.initializer if tensor.name in used]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        del graph.value_info[:]
        known = {opset.domain for opset in self.proto.opset_import}
        if MICROSOFT not in known and any(node.domain == MICROSOFT for node in graph.node):
            self.proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
        return self.proto


def node(kind: str, inputs: Sequence[str], output: str, *, domain: str = "", **attributes: Any) -> Any:
    """Make a node that is named after what it gives."""
    return helper.make_node(kind, list(inputs), [output], name=f"{output}/{kind}", domain=domain, **attributes)
