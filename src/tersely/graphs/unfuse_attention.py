"""Take fused attention apart: an ordinary projection whose weight can be integers, then plain products and Softmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import numpy_helper

from .wiring import input_name, setting

if TYPE_CHECKING:
    from .unfuse import NodeWriter

_UNDERSTOOD = {"num_heads", "scale", "mask_filter_value", "qkv_hidden_sizes"}


def _attention(node: Any, writer: NodeWriter) -> list[Any] | None:
    """`Attention`: x [batch, length, in], weight [in, q+k+v], bias?, mask?, past?, attention bias?."""
    x, weight, bias, mask, past, added = (input_name(node, position) for position in range(6))
    if not _is_plain(node, writer, past, *node.input[6:]) or weight not in writer.initializers:
        return None
    packed = int(writer.initializers[weight].dims[1])
    widths = list(setting(node, "qkv_hidden_sizes", [])) or [packed // 3] * 3
    masking = _mask(node, writer, mask)
    if masking is None:
        return None
    bound = {"x": x, "weight": weight, "bias": bias}
    lines = ["product = MatMul (x, weight)", *(["projected = Add (product, bias)"] if bias else [])]
    lines += [
        f"widths = Constant <value_ints = {widths}> ()",
        f"query, key, value = Split <axis = -1> ({'projected' if bias else 'product'}, widths)",
    ]
    made, masked = masking
    attended = _attend(node, writer, lines, bound, (*masked, *filter(None, [added])), widths[0])
    # The output still has the module's path, which the weight is then named after.
    attended[0].name = writer.name(f"{node.output[0].rpartition('/')[0]}/qkv/MatMul")
    return [*made, *attended]


def _multi_head_attention(node: Any, writer: NodeWriter) -> list[Any] | None:
    """`MultiHeadAttention`: query, key, value [batch, length, width], bias? [q+k+v], mask?, attention bias?."""
    query, key, value, bias, mask, added = (input_name(node, position) for position in range(6))
    if not _is_plain(node, writer, *node.input[6:]) or not (key and value):
        return None
    widths = [_width(name, writer) for name in (query, key, value)]
    if not all(widths) or (bias and bias not in writer.initializers):
        return None
    masking = _mask(node, writer, mask)
    if masking is None:
        return None
    made, masked = masking
    bound, lines = {"query": query, "key": key, "value": value}, []
    if bias:
        bound = {"q": query, "k": key, "v": value}
        parts = np.split(numpy_helper.to_array(writer.initializers[bias]), np.cumsum(widths)[:-1])
        for short, name, part in zip("qkv", ("query", "key", "value"), parts, strict=True):
            lines.append(f"{name} = Add ({short}, {short}_bias)")
            bound[f"{short}_bias"] = writer.constant(f"{bias}/{name}", part)
    return [*made, *_attend(node, writer, lines, bound, (*masked, *filter(None, [added])), widths[0])]


def _is_plain(node: Any, writer: NodeWriter, *cached: str) -> bool:
    """Whether it is an encoder's: no cache, no causal mask, no rotation inside."""
    settings = {held.name for held in node.attribute} - _UNDERSTOOD
    kept = any(writer.wanted(node, position) for position in range(1, len(node.output)))
    return not any(cached) and not kept and not any(setting(node, name, 0) for name in settings)


def _width(value: str, writer: NodeWriter) -> int:
    """How wide the output of a projection is; 0 if it is not one."""
    giver = writer.givers.get(value)
    while giver is not None and giver.op_type == "Add":
        giver = next((writer.givers[name] for name in giver.input if name in writer.givers), None)
    weight = writer.initializers.get(input_name(giver, 1)) if giver is not None and giver.op_type == "MatMul" else None
    return int(weight.dims[1]) if weight is not None and len(weight.dims) == 2 else 0


def _attend(
    node: Any, writer: NodeWriter, lines: list[str], bound: dict[str, str], added: tuple[str, ...], width: int
) -> list[Any]:
    """Softmax(QKᵀ·scale + added)·V, after the lines that give query, key and value [batch, length, width]."""
    heads = setting(node, "num_heads", 0)
    scale = setting(node, "scale", 0.0) or 1 / math.sqrt(width // heads)
    lines = [
        *lines,
        f"heads = Constant <value_ints = [0, 0, {heads}, -1]> ()",
        "query_apart = Reshape (query, heads)",
        "key_apart = Reshape (key, heads)",
        "value_apart = Reshape (value, heads)",
        "queries = Transpose <perm = [0, 2, 1, 3]> (query_apart)",
        "keys = Transpose <perm = [0, 2, 3, 1]> (key_apart)",
        "values = Transpose <perm = [0, 2, 1, 3]> (value_apart)",
        f"scale = Constant <value_float = {scale}> ()",
        "products = MatMul (queries, keys)",
        "scores = Mul (products, scale)",
    ]
    scores = "scores"
    for number, value in enumerate(added):
        lines.append(f"more{number} = Add ({scores}, added{number})")
        bound[f"added{number}"], scores = value, f"more{number}"
    lines += [
        f"weights = Softmax <axis = -1> ({scores})",
        "contexts = MatMul (weights, values)",
        "context = Transpose <perm = [0, 2, 1, 3]> (contexts)",
        "together = Constant <value_ints = [0, 0, -1]> ()",
        "y = Reshape (context, together)",
    ]
    return writer.write(node, *lines, y=node.output[0], **bound)


def _mask(node: Any, writer: NodeWriter, mask: str) -> tuple[list[Any], tuple[str, ...]] | None:
    """Nodes that make of a mask what is added to the scores, and the name of that; None for forms not known here.

    A mask is the length of each row [batch], which keys are real [batch, length], or that for each query
    [batch, length, length]. All layers share the first one's nodes.
    """
    if not mask:
        return [], ()
    low = setting(node, "mask_filter_value", -10000.0)
    if (mask, low) in writer.remembered:
        return [], (writer.remembered[mask, low],)
    sizes = writer.dimensions(mask) or []
    lines = ["none = Constant <value_int = 0> ()", "whole = Cast <to = 7> (mask)"]
    if len(sizes) == 1 and sizes[0] == writer.batch:
        lines += [
            "one = Constant <value_int = 1> ()",
            "columns = Constant <value_ints = [1]> ()",
            "shape = Shape (ids)",
            "length = Gather (shape, one)",
            "places = Range (none, length, one)",
            "ends = Unsqueeze (whole, columns)",
            "real = Less (places, ends)",
        ]
    elif len(sizes) in {2, 3}:
        lines.append("real = Greater (whole, none)")
    else:
        return None
    axes = [1] if len(sizes) == 3 else [1, 2]
    lines += [
        f"axes = Constant <value_ints = {axes}> ()",
        "zero = Constant <value_float = 0.0> ()",
        f"low = Constant <value_float = {low}> ()",
        "flat = Where (real, zero, low)",
        "mask_scores = Unsqueeze (flat, axes)",
    ]
    written = writer.write(node, *lines, mask=mask, ids=writer.ids)
    writer.remembered[mask, low] = written[-1].output[0]
    return written, (writer.remembered[mask, low],)


RULES = {"Attention": _attention, "MultiHeadAttention": _multi_head_attention}
