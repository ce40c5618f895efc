"""Who gives, who reads and who holds what in a graph: the questions that all who look at graphs ask."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import onnx


def walk(graph: Any) -> Iterator[Any]:
    """Every node, those inside the branches of `If` and `Loop` too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from walk(inner)


def reads(node: Any) -> set[str]:
    """What a node needs, its branches included."""
    inner = {
        name
        for attribute in node.attribute
        for branch in (attribute.g, *attribute.graphs)
        for nested in walk(branch)
        for name in nested.input
    }
    return {name for name in (*node.input, *inner) if name}


def readers(graph: Any) -> dict[str, list[Any]]:
    """By value, the nodes of the graph that read it."""
    found: dict[str, list[Any]] = defaultdict(list)
    for node in graph.node:
        for name in reads(node):
            found[name].append(node)
    return found


def givers(graph: Any) -> dict[str, Any]:
    """By value, the node of the graph that gives it."""
    return {name: node for node in graph.node for name in node.output if name}


def initializers(graph: Any) -> dict[str, Any]:
    """The graph's tensors by name."""
    return {tensor.name: tensor for tensor in graph.initializer}


def opset_of(proto: Any) -> int:
    """The version of the standard operators; 0 if none is named."""
    return max((int(opset.version) for opset in proto.opset_import if not opset.domain), default=0)


def setting(node: Any, name: str, default: Any) -> Any:
    """An attribute's value, text as text."""
    for attribute in node.attribute:
        if attribute.name == name:
            value = onnx.helper.get_attribute_value(attribute)
            return value.decode() if isinstance(value, bytes) else value
    return default


def input_name(node: Any, position: int) -> str:
    """The name of an input, "" if it is left out."""
    return str(node.input[position]) if position < len(node.input) else ""


def rename(graph: Any, new: Mapping[str, str]) -> None:
    """Rename initializers, and let nodes read other values; which node gives them is not touched."""
    for tensor in graph.initializer:
        tensor.name = new.get(tensor.name, tensor.name)
    for node in walk(graph):
        for position, name in enumerate(node.input):
            if name in new:
                node.input[position] = new[name]


def leading_to(graph: Any, values: Iterable[str]) -> list[Any]:
    """The nodes that these values need, in order."""
    needed, found = set(values), []
    for node in reversed(graph.node):
        if needed & set(node.output):
            found.append(node)
            needed |= reads(node)
    return found[::-1]


def drop_dead(graph: Any) -> None:
    """Take out the nodes that no output needs."""
    refill(graph.node, leading_to(graph, (value.name for value in graph.output)))


def put_in_order(graph: Any) -> None:
    """Sort nodes so that each comes after what it reads, as the standard wants it; those in order stay as they are."""
    missing = set(givers(graph))
    waiting, ordered = list(graph.node), []
    while waiting:
        later = []
        for node in waiting:
            if reads(node) & missing:
                later.append(node)
            else:
                ordered.append(node)
                missing -= set(node.output)
        if len(later) == len(waiting):  # a circle: the engine will say so
            ordered, later = ordered + later, []
        waiting = later
    refill(graph.node, ordered)


def drop_unread(graph: Any) -> None:
    """Take out the initializers that nothing reads, one by one: a new list would copy all weights."""
    read = {name for node in walk(graph) for name in node.input} | {value.name for value in graph.output}
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name not in read:
            del graph.initializer[place]


def refill(field: Any, values: Iterable[Any]) -> None:
    """Put these values in the place of all that a repeated field of a message holds."""
    values = list(values)
    del field[:]
    field.extend(values)


class Names:
    """Gives names that neither a value nor a node of a graph has yet."""

    def __init__(self, graph: Any) -> None:
        self._taken = {name for node in walk(graph) for name in (node.name, *node.input, *node.output)}
        self._taken |= {held.name for held in (*graph.initializer, *graph.input, *graph.output)}

    def new(self, wish: str) -> str:
        """The name wished for, or with the first free number behind it."""
        name, number = wish, 1
        while name in self._taken:
            number += 1
            name = f"{wish}.{number}"
        self._taken.add(name)
        return name
