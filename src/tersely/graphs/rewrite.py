"""Replace nodes of a graph by others: the little that all graph writers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from ..errors import UserError
from .wiring import Names, givers, replace_nodes, walk

MICROSOFT = "com.microsoft"


class Rewrite:
    """A graph being rewritten: a copy, so that the one it came from stays as it is."""

    def __init__(self, proto: Any) -> None:
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(proto)
        self._names = Names(self.proto.graph)
        self._givers = givers(self.proto.graph)
        self._constants: dict[str, str] = {}
        self._after: dict[str, list[Any]] = {}
        self._instead: dict[str, list[Any]] = {}

    def node(self, output: str) -> Any:
        """The node that gives this output, to be changed in place; what it gives must stay."""
        return self._givers[output]

    def new(self, wish: str) -> str:
        """A name that nothing in the graph has yet."""
        return self._names.new(wish)

    def constant(self, wish: str, array: NDArray[Any]) -> str:
        """Put an initializer in, once: who wishes for the same name means the same array."""
        if wish not in self._constants:
            self._constants[wish] = self.new(wish)
            self.proto.graph.initializer.append(
                numpy_helper.from_array(np.ascontiguousarray(array), self._constants[wish])
            )
        return self._constants[wish]

    def after(self, value: str, nodes: Sequence[Any]) -> None:
        """Put nodes behind the one that gives a value, so that all who read it may read them; at the start if none."""
        self._after.setdefault(value if value in self._givers else "", []).extend(nodes)

    def instead(self, output: str, nodes: Sequence[Any]) -> None:
        """Put nodes in the place of the one whose first output this is."""
        self._instead[output] = list(nodes)

    def finish(self) -> Any:
        """Make the new graph: nodes in order, initializers that are still read, the operator sets that are used."""
        graph = self.proto.graph
        nodes = list(self._after.get("", []))
        for node in graph.node:
            nodes += self._instead.get(node.output[0], [node])
            for value in node.output:
                nodes += self._after.get(value, [])
        replace_nodes(graph, nodes)
        used = {name for node in walk(graph) for name in node.input} | {value.name for value in graph.output}
        kept = [tensor for tensor in graph.initializer if tensor.name in used]
        del graph.initializer[:], graph.value_info[:]
        graph.initializer.extend(kept)
        domains = {node.domain for node in walk(graph)}
        opsets = [opset for opset in self.proto.opset_import if opset.domain in {"", *domains}]
        if MICROSOFT in domains and all(opset.domain != MICROSOFT for opset in opsets):
            opsets.append(helper.make_opsetid(MICROSOFT, 1))
        del self.proto.opset_import[:]
        self.proto.opset_import.extend(opsets)
        return self.proto


def node(kind: str, inputs: Sequence[str], output: str, *, domain: str = "", **attributes: Any) -> Any:
    """Make a node that is named after what it gives."""
    return helper.make_node(kind, list(inputs), [output], name=f"{output}/{kind}", domain=domain, **attributes)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Found = TypeVar("_Found", bound=_Named)
_Held = TypeVar("_Held")


def matched(found: Sequence[_Found], held: Mapping[str, _Held]) -> list[tuple[_Found, _Held]]:
    """Pair what was found in a graph with what a map holds of it; a map of another graph is refused."""
    missing = sorted(set(held) - {one.name for one in found})
    if missing:
        raise UserError(
            f"The quantization map holds '{missing[0]}', which the graph does not have.",
            hint="It was made for another model.",
        )
    return [(one, held[one.name]) for one in found if one.name in held]
