"""Give weights that an exporter numbered (`onnx::MatMul_380`, `val_53`) the names that users know them by."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from .layers import find_layers, find_tables
from .wiring import Names, constants, givers, rename

_NUMBERED = re.compile(
    r"onnx::\w+|_?val_\d+|_v_\d+|\d+|[Cc]onst(ant|_fold_opt)?_+\d+|.*_output_\d+(\.\d+)?|Attention_\d+_qkv_\w+"
)
_OPERATOR = re.compile(r"(Fused)?(MatMul|Gemm|Gather)(_\d+)?")
_SCOPES = "pkg.torch.onnx.name_scopes"


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
            module = _module_of_bias(own) or _module_of_node(nodes[layer.matmul])
            if module:
                new[layer.name] = names.new(f"{module}.weight")
        module = new.get(layer.name, layer.name).removesuffix(".weight")
        if layer.bias and is_numbered(layer.bias) and layer.bias not in new and not is_numbered(module):
            new[layer.bias] = names.new(f"{module}.bias")
    for table in find_tables(proto, smallest=1):
        module = _module_of_node(nodes[table.output])
        if is_numbered(table.name) and table.name not in new and module:
            new[table.name] = names.new(f"{module}.weight")
    for name, tensor in constants(graph).items():
        tensor.name = new.get(name, name)
    rename(graph, new)


def is_numbered(name: str) -> bool:
    """Whether a tool made this name up.

    >>> is_numbered("onnx::MatMul_380"), is_numbered("classifier.weight")
    (True, False)
    """
    return _NUMBERED.fullmatch(name) is not None


def _module_of_bias(bias: str) -> str:
    return "" if is_numbered(bias) or not bias.endswith(".bias") else bias.removesuffix(".bias")


def _module_of_node(node: Any) -> str:
    """The module's name as torch's newer exporter remarks it, or from `/encoder/layer.0/query/MatMul`, with dots."""
    remark = next((held.value for held in node.metadata_props if held.key == _SCOPES), "")
    scopes = re.findall(r"'([^']*)'", remark)
    if len(scopes) > 1:
        return str(scopes[-2])  # the last is the operator's own
    parts = [part for part in node.name.partition("/")[2].split("/") if part]
    operator = next((place for place, part in enumerate(parts) if _OPERATOR.fullmatch(part)), 0)
    return ".".join(parts[:operator])
