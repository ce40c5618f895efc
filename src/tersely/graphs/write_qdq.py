"""Standard ONNX Q/DQ pairs on inputs and weights, for OpenVINO, TensorRT and whoever else reads ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from ..quant_map import QuantLayer, QuantMap, Range
from .layers import LinearLayer, find_layers, find_products
from .rewrite import Inputs, Rewrite, matched, node, write_tables


def write_qdq(proto: Any, quant_map: QuantMap, *, signed: bool, signed_sides: bool = False) -> Any:
    """Give a new graph with a quantize–dequantize pair on every input that the map holds, and INT8 weights.

    `signed`: s8 inputs with zero point 0, the only form that TensorRT takes; else u8 with a zero point, which covers
    one-sided inputs (GELU) with twice as many codes. `signed_sides`: q, k and v are s8 all the same. OpenVINO gains
    nothing from products of attention with zero points, and much from s8 ones; but on avx2 it sums these wrongly (0.5
    for 64, as it shifts one side to u8 and saturates), whereas u8 ones are right everywhere.
    A layer whose range is taken at run time keeps its float input: engines that quantize on their own do it there, as
    ONNX Runtime 1.31 does (`MatMulNBits`, inputs in blocks of 32).
    The old graph, from `unfold`, stays as it is.
    """
    rewrite = Rewrite(proto)
    inputs: Inputs[str] = Inputs(rewrite, lambda name, range_: _pair(rewrite, name, range_, signed))
    sides: Inputs[str] = Inputs(rewrite, lambda name, range_: _pair(rewrite, name, range_, signed or signed_sides))
    weights: dict[str, str] = {}  # one weight may serve several matmuls
    for layer, quantized in matched(find_layers(proto), quant_map.layers):
        if layer.name not in weights:
            weights[layer.name] = _weight(rewrite, layer, quantized)
        matmul = rewrite.node(layer.matmul)
        matmul.input[0] = inputs.of(layer.input, quantized.range, quantized.smooth)
        matmul.input[1] = weights[layer.name]
        if quantized.bias is not None:
            _set_bias(rewrite, layer, rewrite.constant(f"{layer.name}.bias", quantized.bias))
    for product, ranges in matched(find_products(proto), quant_map.products):
        matmul = rewrite.node(product.name)
        left = inputs if product.kind == "context" else sides  # probabilities have no sign
        matmul.input[0] = left.of(product.left, ranges.left)
        matmul.input[1] = sides.of(product.right, ranges.right)
    write_tables(rewrite, quant_map)
    return rewrite.finish()


def _pair(rewrite: Rewrite, name: str, range_: Range | None, signed: bool) -> tuple[str, list[Any]]:
    if range_ is None:
        return name, []
    step, point = range_.unsigned()
    zero = np.array(point, np.uint8)
    if signed:
        step, zero = range_.symmetric(), np.array(0, np.int8)
    codes, dequantized = rewrite.new(f"{name}.codes"), rewrite.new(f"{name}.dequantized")
    scale = [rewrite.constant(f"{codes}.step", np.array(step, np.float32)), rewrite.constant(f"{codes}.zero", zero)]
    pair = [node("QuantizeLinear", [name, *scale], codes), node("DequantizeLinear", [codes, *scale], dequantized)]
    return dequantized, pair


def _weight(rewrite: Rewrite, layer: LinearLayer, quantized: QuantLayer) -> str:
    scales = quantized.scales
    per_tensor = scales.size == 1
    read = [
        rewrite.constant(f"{layer.name}.int8", quantized.integers),
        rewrite.constant(f"{layer.name}.scales", scales.reshape(()) if per_tensor else scales),
        rewrite.constant(f"{layer.name}.zeros", np.zeros(() if per_tensor else scales.shape, np.int8)),
    ]
    name = rewrite.new(f"{layer.name}.dequantized")
    rewrite.after(layer.name, [node("DequantizeLinear", read, name, axis=1)])  # the axis of one scale is not read
    return name


def _set_bias(rewrite: Rewrite, layer: LinearLayer, bias: str) -> None:
    if layer.bias is not None:
        reader = rewrite.node(layer.output)
        reader.input[list(reader.input).index(layer.bias)] = bias
        return
    bare = onnx.NodeProto()
    bare.CopyFrom(rewrite.node(layer.matmul))
    bare.output[0] = rewrite.new(f"{layer.matmul}.unbiased")
    rewrite.instead(layer.matmul, [bare, node("Add", [bare.output[0], bias], layer.output)])
