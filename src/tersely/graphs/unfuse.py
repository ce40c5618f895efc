"""Take apart what optimizers fused (onnxruntime.transformers, optimum's O1 to O4): the same numbers, standard nodes.

A fused node hides weights, biases and tables that could be integers, and other engines do not know it. ONNX Runtime
fuses them again when it loads the graph.
"""

from __future__ import annotations

import math
from typing import Any

from .fold import lift_constants
from .scribe import Scribe, apply
from .unfuse_attention import RULES as ATTENTION
from .wiring import given, setting


def unfuse(proto: Any) -> None:
    """Rewrite in place. A fused node in a form that encoders do not have stays, and its weights stay float."""
    lift_constants(proto.graph)
    apply(proto, _RULES)
    lift_constants(proto.graph)
    apply(proto, ATTENTION)  # needs what leads to its mask in plain nodes
    lift_constants(proto.graph)


def _bias_gelu(node: Any, scribe: Scribe) -> list[Any]:
    x, bias, y = node.input[0], given(node, 1), node.output[0]
    return scribe.write(node, "x = Add (input, bias)", *_gelu_lines(scribe), input=x, bias=bias, y=y)


def _gelu(node: Any, scribe: Scribe) -> list[Any]:
    return scribe.write(node, *_gelu_lines(scribe), x=node.input[0], y=node.output[0])


def _gelu_lines(scribe: Scribe) -> list[str]:
    if scribe.opset >= 20:
        return ["y = Gelu (x)"]
    return [
        f"root = Constant <value_float = {math.sqrt(2)}> ()",
        "one = Constant <value_float = 1.0> ()",
        "half = Constant <value_float = 0.5> ()",
        "scaled = Div (x, root)",
        "error = Erf (scaled)",
        "raised = Add (error, one)",
        "product = Mul (x, raised)",
        "y = Mul (product, half)",
    ]


def _fast_gelu(node: Any, scribe: Scribe) -> list[Any]:
    """GELU's approximation by tanh, with or without a bias."""
    x, bias, y = node.input[0], given(node, 1), node.output[0]
    lines = ["x = Add (input, bias)"] if bias else []
    bound = {"input": x, "bias": bias} if bias else {"x": x}
    if scribe.opset >= 20:
        lines.append('y = Gelu <approximate = "tanh"> (x)')
    else:
        lines += [
            f"root = Constant <value_float = {math.sqrt(2 / math.pi)}> ()",
            "third = Constant <value_float = 0.044715> ()",
            "three = Constant <value_float = 3.0> ()",
            "one = Constant <value_float = 1.0> ()",
            "half = Constant <value_float = 0.5> ()",
            "cube = Pow (x, three)",
            "part = Mul (cube, third)",
            "sum = Add (x, part)",
            "scaled = Mul (sum, root)",
            "bent = Tanh (scaled)",
            "raised = Add (bent, one)",
            "product = Mul (x, raised)",
            "y = Mul (product, half)",
        ]
    return scribe.write(node, *lines, y=y, **bound)


def _skip_layer_norm(node: Any, scribe: Scribe) -> list[Any] | None:
    """Inputs: x, skip, gain, shift?, bias?; outputs: normalised, mean, deviation, sum."""
    if scribe.wanted(node, 1) or scribe.wanted(node, 2):
        return None
    left, right, gain, shift, bias = (given(node, position) for position in range(5))
    giver = scribe.givers.get(right)
    if giver is not None and giver.op_type == "MatMul":
        left, right = right, left  # the bias belongs to the matmul
    lines = ["biased = Add (left, bias)", "sum = Add (biased, right)"] if bias else ["sum = Add (left, right)"]
    lines.append(_layer_norm_line(node, "sum", shift))
    bound = {"left": left, "right": right, "gain": gain, "y": node.output[0]}
    bound |= {"bias": bias} if bias else {}
    bound |= {"shift": shift} if shift else {}
    bound |= {"sum": scribe.wanted(node, 3)} if scribe.wanted(node, 3) else {}
    return scribe.write(node, *lines, **bound)


def _layer_norm_line(node: Any, value: str, shift: str) -> str:
    epsilon = setting(node, "epsilon", 1e-12)
    return f"y = LayerNormalization <axis = -1, epsilon = {epsilon}> ({value}, gain{', shift' if shift else ''})"


def _embed_layer_norm(node: Any, scribe: Scribe) -> list[Any] | None:
    """Inputs: ids, segments?, words, positions, types?, gain, shift, mask?, position ids?; outputs: y, lengths, sum."""
    ids, segments, words, positions, types, gain, shift, mask, position_ids = (given(node, i) for i in range(9))
    lengths, total = scribe.wanted(node, 1), scribe.wanted(node, 2)
    if lengths and not mask:
        return None
    bound = {"ids": ids, "words": words, "positions": positions, "gain": gain, "shift": shift, "y": node.output[0]}
    lines = ["word = Gather (words, ids)"]
    if position_ids:
        bound["places"] = position_ids
    else:
        lines += [
            "shape = Shape (ids)",
            "zero = Constant <value_int = 0> ()",
            "one = Constant <value_int = 1> ()",
            "length = Gather (shape, one)",
            "places = Range (zero, length, one)",
        ]
    lines += ["position = Gather (positions, places)", f"{'two' if segments else 'sum'} = Add (word, position)"]
    if segments:
        lines += ["segment = Gather (types, segments)", "sum = Add (two, segment)"]
        bound |= {"segments": segments, "types": types}
    lines.append(_layer_norm_line(node, "sum", shift))
    if total:
        bound["sum"] = total
    if lengths:
        lines += ["axes = Constant <value_ints = [1]> ()", "lengths = ReduceSum <keepdims = 0> (mask, axes)"]
        bound |= {"mask": mask, "lengths": lengths}
    return scribe.write(node, *lines, **bound)


def _fused_gemm(node: Any, scribe: Scribe) -> list[Any] | None:
    activation = setting(node, "activation", "")
    if activation not in {"Relu", "Tanh", "Sigmoid"}:
        return None
    inputs = {f"i{position}": name for position, name in enumerate(node.input)}
    lines = (f"g = Gemm ({', '.join(inputs)})", f"y = {activation} (g)")
    gemm, after = scribe.write(node, *lines, y=node.output[0], **inputs)
    gemm.attribute.extend(held for held in node.attribute if not held.name.startswith("activation"))
    return [gemm, after]


def _fused_matmul(node: Any, scribe: Scribe) -> list[Any] | None:
    if any(setting(node, flag, 0) for flag in ("transA", "transBatchA", "transBatchB")):
        return None
    lines, right = [], "right"
    if setting(node, "transB", 0):
        order = _swapped(node.input[1], scribe)
        if order is None:
            return None
        lines, right = [f"turned = Transpose <perm = {order}> (right)"], "turned"
    alpha = setting(node, "alpha", 1.0)
    lines.append(f"{'y' if alpha == 1 else 'product'} = MatMul (left, {right})")
    if alpha != 1:
        lines += [f"alpha = Constant <value_float = {alpha}> ()", "y = Mul (product, alpha)"]
    return scribe.write(node, *lines, left=node.input[0], right=node.input[1], y=node.output[0])


def _swapped(value: str, scribe: Scribe) -> list[int] | None:
    """The order of axes with the last two swapped, if the number of axes shows."""
    giver = scribe.givers.get(value)
    if value in scribe.constants:
        rank = len(scribe.constants[value].dims)
    elif giver is not None and giver.op_type == "Transpose":
        rank = len(setting(giver, "perm", []))
    else:
        rank = len(scribe.dimensions(value) or [])
    return [*range(rank - 2), rank - 1, rank - 2] if rank >= 2 else None


_RULES = {
    "BiasGelu": _bias_gelu,
    "Gelu": _gelu,
    "FastGelu": _fast_gelu,
    "SkipLayerNormalization": _skip_layer_norm,
    "EmbedLayerNormalization": _embed_layer_norm,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
}
