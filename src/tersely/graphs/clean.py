"""Strip an exported graph of what is stale, private or different each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import Failure
from .wiring import walk


def clean(proto: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Clean a graph in place: shapes that mislead other tools, stack traces with paths, leftovers.

    The exporter's inner shapes are stale: with them `quantize_dynamic` refuses the file ("Inferred shape and existing
    shape differ"). Every tool infers them anew, so there are none.
    """
    graph = proto.graph
    _expect(graph.input, inputs)
    _expect(graph.output, outputs)
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        _name_dimensions(value.type.tensor_type.shape.dim)
    _drop_unused(graph)
    for message in (proto, *_messages(graph)):
        # Stack traces, class paths and versions of the machine that exported: private, and different everywhere.
        message.doc_string = ""
        del message.metadata_props[:]
    used = {node.domain for node in walk(graph)}
    kept = [opset for opset in proto.opset_import if opset.domain in used | {""}]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)
    graph.name, proto.producer_name, proto.producer_version = "model", "tersely", ""


def _expect(values: Sequence[Any], names: Sequence[str]) -> None:
    found = [value.name for value in values]
    if found != list(names):
        raise Failure(
            f"The exported graph has {', '.join(found)} where {', '.join(names)} were expected.",
            hint="Name the model's inputs and outputs as its forward has them.",
        )


def _name_dimensions(dimensions: Sequence[Any]) -> None:
    for name, dimension in zip(("batch", "length"), dimensions, strict=False):
        if not dimension.HasField("dim_value"):
            dimension.dim_param = name
    for dimension in dimensions[2:]:
        if dimension.HasField("dim_param"):
            dimension.ClearField("dim_param")


def _drop_unused(graph: Any) -> None:
    used = {name for node in walk(graph) for name in node.input} | {value.name for value in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


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
