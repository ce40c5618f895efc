"""Give the weights of a graph the names that users know them by, where an exporter numbered them (`val_53`).

Reports, skip lists and the `QuantMap` speak of weights by name, so the parameter's name must stand in the graph.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from .layers import find_layers, find_tables
from .wiring import Names, givers, refill, rename

if TYPE_CHECKING:
    from torch import nn

_NUMBERED = re.compile(
    r"onnx::\w+|_?val_\d+|_v_\d+|\d+|[Cc]onst(ant|_fold_opt)?_+\d+|.*_output_\d+(\.\d+)?|Attention_\d+_qkv_\w+"
)
_OPERATOR = re.compile(r"(Fused)?(MatMul|Gemm|Gather)(_\d+)?")


def restore_names(proto: Any, module: nn.Module, prefix: str) -> None:
    """Rename initializers in place: to the parameter they come from, or that they equal, straight or transposed.

    torch's exporter folds a transposition into a linear layer's weight and calls the result `val_53`. A parameter used
    in several places (tied, or ALBERT's shared layers) becomes one initializer. Call it before the exporter's remarks
    are cleaned away: they tell equal weights of different layers apart.
    """
    own = _own_names(module)
    readers: dict[str, list[tuple[Any, int, set[str]]]] = defaultdict(list)
    for node in proto.graph.node:
        modules = {scope.removeprefix(prefix) for scope in _scopes(node)}
        for position, name in enumerate(node.input):
            readers[name].append((node, position, modules))
    candidates = _Candidates(module, proto.graph, {f"{prefix}{name}" for name in own})
    held: dict[str, Any] = {}
    for tensor in list(proto.graph.initializer):
        before = tensor.name
        direct = own.get(before.removeprefix(prefix)) if before.startswith(prefix) else None
        names = list(dict.fromkeys((*([direct] if direct else []), *candidates.of(tensor)))) or [before]
        # Reader by reader: the exporter makes one of two small weights that happen to be equal, and a layer that is
        # then quantized or smoothed must not change another.
        for node, position, modules in readers[before]:
            # Of equal weights the one whose module the node comes from; else one not yet spoken for.
            by_module = [name for name in names if name.rpartition(".")[0] in modules]
            fresh = [name for name in names if direct or name not in held]
            name = (*by_module, *fresh, *names)[0]
            if name in held and not _same(held[name], tensor):
                # One name, two forms: a table that is gathered from and, transposed, multiplied with.
                name = f"{name}.transposed"
            node.input[position] = name
            if name not in held:
                held[name] = tensor if tensor.name == before else copy.deepcopy(tensor)
                held[name].name = name
    refill(proto.graph.initializer, held.values())


class _Candidates:
    """Parameters by content. Only those whose shape some nameless initializer has are ever read."""

    def __init__(self, module: nn.Module, graph: Any, named: set[str]) -> None:
        self._named = named
        shapes = {tuple(t.dims) for t in graph.initializer if t.name not in named and len(t.dims) >= 2}
        self._names: dict[bytes, list[str]] = defaultdict(list)
        for name, parameter in module.named_parameters():
            shape = tuple(parameter.shape)
            if len(shape) == 1 or shape in shapes or shape[::-1] in shapes:
                array = parameter.detach().numpy()
                for form in [array, array.T] if array.ndim == 2 else [array]:
                    self._names[_digest(form)].append(name)

    def of(self, tensor: Any) -> list[str]:
        # A vector without a name is left alone: a constant of zeros is not the bias that happens to be zero too.
        ranks = {1} if tensor.name in self._named else {2, 3, 4}
        if len(tensor.dims) not in ranks or tensor.data_type != onnx.TensorProto.FLOAT:
            return []
        return self._names.get(_digest(numpy_helper.to_array(tensor)), [])


def _own_names(module: nn.Module) -> dict[str, str]:
    """Every name of every parameter and buffer, to the first name of the same tensor."""
    first: dict[int, str] = {}
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return {name: first.setdefault(id(tensor), name) for name, tensor in tensors}


def _digest(array: NDArray[Any]) -> bytes:
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.blake2b(head + np.ascontiguousarray(array).tobytes(), digest_size=16).digest()


def _same(tensor: Any, other: Any) -> bool:
    return bool(np.array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(other)))


def give_names(proto: Any) -> None:
    """Rename initializers in place: weights after their bias or the path of their node, biases and tables too.

    A weight whose module shows in neither keeps its number.
    """
    graph = proto.graph
    names, nodes = Names(graph), givers(graph)
    layers = find_layers(proto)
    sharing = defaultdict(set)
    for layer in layers:
        sharing[layer.bias].add(layer.name)
    new: dict[str, str] = {}
    for layer in layers:
        if is_numbered(layer.name) and layer.name not in new:
            # Tools make one of two biases that are equal (all zeros, say): such a one names nobody's weight.
            own = layer.bias if layer.bias and len(sharing[layer.bias]) == 1 else ""
            by_bias = own.removesuffix(".bias") if own.endswith(".bias") and not is_numbered(own) else ""
            module = by_bias or _module_of_node(nodes[layer.matmul])
            if module:
                new[layer.name] = names.new(f"{module}.weight")
        module = new.get(layer.name, layer.name).removesuffix(".weight")
        if layer.bias and is_numbered(layer.bias) and layer.bias not in new and not is_numbered(module):
            new[layer.bias] = names.new(f"{module}.bias")
    for table in find_tables(proto, smallest=1):
        module = _module_of_node(nodes[table.output])
        if is_numbered(table.name) and table.name not in new and module:
            new[table.name] = names.new(f"{module}.weight")
    rename(graph, new)


def is_numbered(name: str) -> bool:
    """Whether a tool made this name up.

    >>> is_numbered("onnx::MatMul_380"), is_numbered("classifier.weight")
    (True, False)
    """
    return _NUMBERED.fullmatch(name) is not None


def _module_of_node(node: Any) -> str:
    """The module's name as torch's newer exporter remarks it, or from `/encoder/layer.0/query/MatMul`, with dots."""
    scopes = _scopes(node)
    if len(scopes) > 1:
        return scopes[-2]  # the last is the operator's own
    parts = [part for part in node.name.partition("/")[2].split("/") if part]
    operator = next((place for place, part in enumerate(parts) if _OPERATOR.fullmatch(part)), 0)
    return ".".join(parts[:operator])


def _scopes(node: Any) -> list[str]:
    """The modules that torch's exporter remarks at a node, from the outermost to the operator's own."""
    remark = next((held.value for held in node.metadata_props if held.key == "pkg.torch.onnx.name_scopes"), "")
    return re.findall(r"'([^']*)'", remark)
