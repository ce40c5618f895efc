"""Find what can be quantized in a graph: weighted matmuls, products of attention, embedding tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import onnx

from .wiring import givers, initializers, input_name, readers, reads, setting

SMALLEST = 64
"""Rows that a table must have to be worth integers: segments (2) and relative-position buckets (32) have fewer."""
_MATMULS = {"MatMul", "Gemm"}


@dataclass(frozen=True)
class LinearLayer:
    """A weighted matmul, its bias included: input [..., in] times weight [in, out].

    A node is known by its first output. `matmul` is what the matmul itself gives, `output` what the layer gives: the
    same unless an `Add` of the bias follows. A weight that several matmuls read (ALBERT's layers) gives a layer for
    each: (`name`, `matmul`) is the key. `constant_input`: the input does not depend on the graph's (DeBERTa's relative
    positions). `transposed`: a Gemm that holds its weight as [out, in]; `unfold` leaves none.
    """

    name: str
    input: str
    matmul: str
    output: str
    bias: str | None
    shape: tuple[int, int]
    constant_input: bool = False
    transposed: bool = False


Kind = Literal["scores", "context"]
"""QKᵀ and PV."""


@dataclass(frozen=True)
class Product:
    """A plain MatMul of two activations inside attention; `name` is what it gives."""

    name: str
    left: str
    right: str
    kind: Kind


@dataclass(frozen=True)
class EmbeddingTable:
    """A Gather of rows from a weight [rows, width]; (`name`, `output`) is the key."""

    name: str
    indices: str
    output: str
    shape: tuple[int, int]


def find_layers(proto: Any) -> list[LinearLayer]:
    """Every weighted matmul, in the graph's order.

    >>> from onnx import parser
    >>> graph = "agraph (float[n, 2] x) => (float[n, 2] y) <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {0, 1}>"
    >>> head = '<ir_version: 8, opset_import: ["": 17]>'
    >>> (layer,) = find_layers(parser.parse_model(f"{head} {graph} {{ m = MatMul(x, w) y = Add(m, b) }}"))
    >>> layer.name, layer.input, layer.matmul, layer.output, layer.bias, layer.shape
    ('w', 'x', 'm', 'y', 'b', (2, 2))
    """
    graph = _Graph(proto.graph)
    return [layer for node in proto.graph.node if (layer := graph.layer(node))]


def find_products(proto: Any) -> list[Product]:
    """The two products of each attention (four of DeBERTa's), in the graph's order, told apart by the Softmax."""
    graph = _Graph(proto.graph)
    softmaxes = [node for node in proto.graph.node if node.op_type == "Softmax"]
    scores = {node.output[0] for softmax in softmaxes for node in graph.matmuls_before(softmax)}
    context = {node.output[0] for softmax in softmaxes for node in graph.matmuls_after(softmax)}
    # The product of one attention could only lead to the Softmax of the next through a weighted matmul.
    kinds: dict[str, Kind] = {**dict.fromkeys(scores, "scores"), **dict.fromkeys(context, "context")}
    return [
        Product(node.output[0], node.input[0], node.input[1], kinds[node.output[0]])
        for node in proto.graph.node
        if node.op_type == "MatMul" and node.output[0] in kinds and graph.tensors.keys().isdisjoint(node.input)
    ]


def find_tables(proto: Any, smallest: int = SMALLEST) -> list[EmbeddingTable]:
    """Every Gather of whole rows from a float weight of at least so many rows, in the graph's order."""
    tensors = initializers(proto.graph)
    found = []
    for node in proto.graph.node:
        tensor = tensors.get(input_name(node, 0))
        if node.op_type == "Gather" and setting(node, "axis", 0) == 0 and tensor is not None and _is_matrix(tensor):
            rows, width = tensor.dims
            if rows >= smallest:
                found.append(EmbeddingTable(tensor.name, node.input[1], node.output[0], (rows, width)))
    return found


class _Graph:
    """A graph with its questions answered once."""

    def __init__(self, graph: Any) -> None:
        self.tensors = initializers(graph)
        self._readers, self._givers = readers(graph), givers(graph)
        self._outputs = {value.name for value in graph.output}
        self._varying = {value.name for value in graph.input} - set(self.tensors)
        for node in graph.node:
            if reads(node) & self._varying:
                self._varying.update(node.output)

    def layer(self, node: Any) -> LinearLayer | None:
        weight = self.tensors.get(input_name(node, 1))
        if node.domain or node.op_type not in _MATMULS or weight is None or not _is_matrix(weight):
            return None
        transposed = node.op_type == "Gemm" and bool(setting(node, "transB", 0))
        rows, columns = weight.dims
        shape = (columns, rows) if transposed else (rows, columns)
        output, bias = node.output[0], None
        if node.op_type == "Gemm":
            bias = input_name(node, 2) or None
            if not _is_plain(node) or (bias is not None and not self._is_bias(bias, shape[1])):
                return None
        elif len(self._readers[output]) == 1 and output not in self._outputs:
            output, bias = self._biased(self._readers[output][0], output, shape[1])
        constant = node.input[0] not in self._varying
        return LinearLayer(weight.name, node.input[0], node.output[0], output, bias, shape, constant, transposed)

    def _biased(self, reader: Any, value: str, width: int) -> tuple[str, str | None]:
        """What the layer gives, and its bias, if the one node that reads the matmul adds a bias to it."""
        if reader.op_type == "Add" and value in reader.input:
            other = next((name for name in reader.input if name != value), value)
            if self._is_bias(other, width):
                return reader.output[0], other
        return value, None

    def _is_bias(self, name: str, width: int) -> bool:
        return name in self.tensors and list(self.tensors[name].dims) == [width]

    def matmuls_before(self, softmax: Any) -> Iterator[Any]:
        """Going back from a Softmax, through masks, scales and reshapes, the first matmuls."""
        givers = {name: [node] for name, node in self._givers.items()}
        return (node for node, _ in _first_matmuls(reads(softmax), givers, reads))

    def matmuls_after(self, softmax: Any) -> Iterator[Any]:
        """Going on from a Softmax the first matmuls that have it on their left."""
        found = _first_matmuls(softmax.output, self._readers, lambda node: node.output)
        return (node for node, value in found if input_name(node, 0) == value)


def _first_matmuls(
    values: Iterable[str], nodes: Mapping[str, list[Any]], onward: Callable[[Any], Iterable[str]]
) -> Iterator[tuple[Any, str]]:
    """The first matmuls on all ways from these values, each with the value that led to it."""
    waiting, seen = list(values), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in nodes.get(name, []):
            if node.op_type in _MATMULS:
                yield node, name
            else:
                waiting += onward(node)


def _is_matrix(tensor: Any) -> bool:
    return len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT


def _is_plain(gemm: Any) -> bool:
    factors = (setting(gemm, "alpha", 1.0), setting(gemm, "beta", 1.0))
    return factors == (1.0, 1.0) and not setting(gemm, "transA", 0)
