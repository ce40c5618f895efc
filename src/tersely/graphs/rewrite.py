"""What all graph writers share: nodes replaced by others, quantized inputs and tables, weights on disk once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from ..errors import UserError
from ..quant_map import Floats, QuantMap, Range
from .layers import EmbeddingTable, LinearLayer, Product, find_tables
from .wiring import Names, drop_unread, givers, refill, walk

MICROSOFT = "com.microsoft"
LEAST_SHARED = 1024
"""Bytes below which a tensor is not worth a reference."""


class Rewrite:
    """A graph being rewritten: a copy, so that the one it came from stays as it is."""

    def __init__(self, proto: Any) -> None:
        self.proto = copy.deepcopy(proto)
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
            self._constants[wish] = name = self.new(wish)
            self.proto.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
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
        refill(graph.node, nodes)
        drop_unread(graph)
        del graph.value_info[:]
        domains = {node.domain for node in walk(graph)}
        opsets = [opset for opset in self.proto.opset_import if opset.domain in {"", *domains}]
        if MICROSOFT in domains and all(opset.domain != MICROSOFT for opset in opsets):
            opsets.append(helper.make_opsetid(MICROSOFT, 1))
        refill(self.proto.opset_import, opsets)
        return self.proto


def node(kind: str, inputs: Sequence[str], output: str, *, domain: str = "", **attributes: Any) -> Any:
    """Make a node that is named after what it gives."""
    return helper.make_node(kind, list(inputs), [output], name=f"{output}/{kind}", domain=domain, **attributes)


_Found = TypeVar("_Found", LinearLayer, Product, EmbeddingTable)
_Held = TypeVar("_Held")


def matched(found: Sequence[_Found], held: Mapping[str, _Held]) -> list[tuple[_Found, _Held]]:
    """Pair what was found in a graph with what a map holds of it; a map of another graph is refused."""
    for name in sorted(set(held) - {target.name for target in found}):
        what = f"The quantization map holds '{name}', which the graph does not have."
        raise UserError(what, hint="It was made for another model.")
    return [(target, held[target.name]) for target in found if target.name in held]


Written = TypeVar("Written")


class Inputs(Generic[Written]):
    """What matmuls read: each value smoothed and quantized once, however many of them read it (q, k and v).

    `quantize` is the graph writer's own way: a value's name and range to what the matmuls read in its place, and the
    nodes that give that.
    """

    def __init__(self, rewrite: Rewrite, quantize: Callable[[str, Range | None], tuple[Written, list[Any]]]) -> None:
        self._rewrite, self._quantize = rewrite, quantize
        self._made: dict[tuple[str, Range | None, bytes], Written] = {}

    def of(self, value: str, range_: Range | None, smooth: Floats | None = None) -> Written:
        """What a matmul reads in the place of a value: a second one with the same range and smoothing, the same."""
        key = (value, range_, b"" if smooth is None else smooth.tobytes())
        if key not in self._made:
            name, nodes = value, []
            if smooth is not None:
                name = self._rewrite.new(f"{value}.smoothed")
                factor = self._rewrite.constant(f"{name}.factor", (1 / smooth).astype(np.float32))
                nodes = [node("Mul", [value, factor], name)]
            self._made[key], quantizers = self._quantize(name, range_)
            self._rewrite.after(value, [*nodes, *quantizers])
        return self._made[key]


def write_tables(rewrite: Rewrite, quant_map: QuantMap) -> None:
    """Gather the integers and scales of INT8 embedding tables, and dequantize only those rows: for every engine."""
    for table, quantized in matched(find_tables(rewrite.proto), quant_map.tables):
        rows = rewrite.constant(f"{table.name}.rows", quantized.integers)
        scales = rewrite.constant(f"{table.name}.row_scales", quantized.scales[:, None].astype(np.float32))
        codes, numbers, scale = (rewrite.new(f"{table.output}.{part}") for part in ("codes", "float", "scale"))
        nodes = [
            node("Gather", [rows, table.indices], codes, axis=0),
            node("Cast", [codes], numbers, to=TensorProto.FLOAT),
            node("Gather", [scales, table.indices], scale, axis=0),
            node("Mul", [numbers, scale], table.output),
        ]
        rewrite.instead(table.output, nodes)


def save_sharing(first: Any, others: Mapping[str, Any], folder: Path, name: str) -> None:
    """Write several graphs over one set of weights: `first` as folder/name, the others by their file's name beside it.

    The first is one self-contained file, which any ONNX tool loads. The others say of each large tensor that the first
    holds too "it lies in that file, from this byte on": ONNX's own external data, which engines map into memory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = first.SerializeToString(deterministic=True)
    (folder / name).write_bytes(content)
    places: dict[bytes, int] = {}
    start = 0
    for tensor in first.graph.initializer:  # their bytes lie in the file in this order
        raw = tensor.raw_data
        if len(raw) >= LEAST_SHARED:
            places[raw] = content.find(raw, start)  # found early, where equal bytes lie, is found as well
            start = places[raw] + len(raw)
    for other_name, proto in others.items():
        slim = copy.deepcopy(proto)
        for tensor in slim.graph.initializer:
            raw = tensor.raw_data
            if raw in places:
                external_data_helper.set_external_data(tensor, name, places[raw], len(raw))
                tensor.ClearField("raw_data")
        (folder / other_name).write_bytes(slim.SerializeToString(deterministic=True))
