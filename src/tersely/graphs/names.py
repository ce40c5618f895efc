"""Give the weights of an exported graph their parameters' own names back.

The exporter folds a transposition into a linear layer's weight and calls the result `val_53`. Reports, skip lists and
the `QuantMap` speak of weights by name, so the parameter's name must stand there, transposed or not.
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from torch import nn

_SCOPES = "pkg.torch.onnx.name_scopes"


def restore_names(proto: Any, module: nn.Module, prefix: str) -> None:
    """Rename initializers in place: to the parameter they come from, or that they equal, straight or transposed.

    A parameter used in several places (tied, or ALBERT's shared layers) becomes one initializer. Call it before the
    exporter's remarks are cleaned away: they tell equal weights of different layers apart.
    """
    own = _own_names(module)
    readers = _readers(proto.graph, prefix)
    candidates = _Candidates(module, proto.graph, {f"{prefix}{name}" for name in own})
    held: dict[str, Any] = {}
    for tensor in list(proto.graph.initializer):
        before = tensor.name
        direct = own.get(before.removeprefix(prefix)) if before.startswith(prefix) else None
        names = list(dict.fromkeys((*([direct] if direct else []), *candidates.of(tensor)))) or [before]
        # Reader by reader: the exporter makes one of two small weights that happen to be equal, and a layer that is
        # then quantized or smoothed must not change another.
        for node, position, scopes in readers[before]:
            name = _choose(names, scopes, {} if direct else held)
            if name in held and not _same(held[name], tensor):
                # One name, two forms: a table that is gathered from and, transposed, multiplied with.
                name = f"{name}.transposed"
            node.input[position] = name
            if name not in held:
                held[name] = tensor if tensor.name == before else _copied(tensor)
                held[name].name = name
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(held.values())


class _Candidates:
    """Parameters by content. Only those whose shape some nameless initializer has are ever read."""

    def __init__(self, module: nn.Module, graph: Any, named: set[str]) -> None:
        self._named = named
        shapes = {tuple(t.dims) for t in graph.initializer if t.name not in named and len(t.dims) >= 2}
        self._names: dict[bytes, list[str]] = defaultdict(list)
        for name, parameter in module.named_parameters():
            shape = tuple(parameter.shape)
            if len(shape) == 1 or shape in shapes or shape[::-1] in shapes:
                for array in _forms(parameter.detach().numpy()):
                    self._names[_digest(array)].append(name)

    def of(self, tensor: Any) -> list[str]:
        # A vector without a name is left alone: a constant of zeros is not the bias that happens to be zero too.
        ranks = {1} if tensor.name in self._named else {2, 3, 4}
        if len(tensor.dims) not in ranks or tensor.data_type != onnx.TensorProto.FLOAT:
            return []
        return self._names.get(_digest(onnx.numpy_helper.to_array(tensor)), [])


def _choose(names: list[str], scopes: set[str], held: dict[str, Any]) -> str:
    """Of equal weights the one whose module the graph's node comes from; else one not yet spoken for."""
    by_scope = [name for name in names if name.rpartition(".")[0] in scopes]
    fresh = [name for name in names if name not in held]
    return (*by_scope, *fresh, *names)[0]


def _copied(tensor: Any) -> Any:
    copied = onnx.TensorProto()
    copied.CopyFrom(tensor)
    return copied


def _own_names(module: nn.Module) -> dict[str, str]:
    """Every name of every parameter and buffer, to the first name of the same tensor."""
    first: dict[int, str] = {}
    tensors = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return {name: first.setdefault(id(tensor), name) for name, tensor in tensors}


def _readers(graph: Any, prefix: str) -> dict[str, list[tuple[Any, int, set[str]]]]:
    """By value: the nodes that read it, at which of their inputs, and the modules that each node comes from."""
    readers: dict[str, list[tuple[Any, int, set[str]]]] = defaultdict(list)
    for node in graph.node:
        text = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), "[]")
        scopes = {scope.removeprefix(prefix) for scope in ast.literal_eval(text)}
        for position, name in enumerate(node.input):
            readers[name].append((node, position, scopes))
    return readers


def _forms(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    yield array
    if array.ndim == 2:
        yield array.T


def _digest(array: NDArray[Any]) -> bytes:
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.blake2b(head + np.ascontiguousarray(array).tobytes(), digest_size=16).digest()


def _same(one: Any, other: Any) -> bool:
    return list(one.dims) == list(other.dims) and bool(
        np.array_equal(onnx.numpy_helper.to_array(one), onnx.numpy_helper.to_array(other))
    )
