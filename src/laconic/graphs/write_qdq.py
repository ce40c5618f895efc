"""Standard ONNX Q/DQ pairs on inputs and weights, for OpenVINO, TensorRT and whoever else reads ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..quant_map import QuantMap, Range
from .layers import Layer, find_layers, find_products
from .rewrite import Rewrite, node
from .write_tables import write_tables


def write_qdq(proto: Any, quant_map: QuantMap, *, signed: bool) -> Any:
    """Give a new graph with a quantize–dequantize pair on every input that the map holds, and INT8 weights.

    `signed`: s8 inputs with zero point 0, the only form that TensorRT takes; else u8 with a zero point, which covers
    one-sided inputs (GELU) with twice as many codes.
    A layer whose range is taken at run time keeps its float input: engines that quantize on their own do it there.
    """
    rewrite = Rewrite(proto)
    pairs = _Pairs(rewrite, signed)
    nodes = {output: made for made in rewrite.proto.graph.node for output in made.output}
    for layer in find_layers(proto):
        if layer.name in quant_map.layers:
            quantized = quant_map.layers[layer.name]
            matmul = nodes[layer.matmul]
            matmul.input[0] = pairs.of(layer.input, quantized.range, quantized.smooth, before=layer.matmul)
            matmul.input[1] = _weight(rewrite, layer, quantized.integers, quantized.scales)
            if quantized.bias is not None:
                _set_bias(rewrite, nodes, layer, quantized.bias)
    for product in find_products(proto):
        if product.name in quant_map.products:
            ranges = quant_map.products[product.name]
            made = nodes[product.name]
            made.input[0] = pairs.of(product.left, ranges.left, None, before=product.name)
            made.input[1] = pairs.of(product.right, ranges.right, None, before=product.name)
    write_tables(rewrite, quant_map)
    return rewrite.finish()


def _weight(rewrite: Rewrite, layer: Layer, integers: Any, scales: Any) -> str:
    name = f"{layer.name}.dequantized"
    if rewrite.has(f"{layer.name}.int8"):
        return name  # one weight, several matmuls
    whole = scales.size == 1
    inputs = [
        rewrite.constant(f"{layer.name}.int8", integers),
        rewrite.constant(f"{layer.name}.scales", scales.reshape(()) if whole else scales),
        rewrite.constant(f"{layer.name}.zeros", np.zeros(() if whole else scales.shape, np.int8)),
    ]
    rewrite.before(layer.matmul, [node("DequantizeLinear", inputs, name, axis=1)])  # the axis of one scale is not read
    return name


def _set_bias(rewrite: Rewrite, nodes: dict[str, Any], layer: Layer, bias: Any) -> None:
    name = rewrite.constant(f"{layer.name}.bias", bias)
    if layer.bias is not None:
        reader = nodes[layer.output]
        reader.input[list(reader.input).index(layer.bias)] = name
        return
    matmul = nodes[layer.matmul]
    matmul.output[0] = f"{layer.matmul}.unbiased"
    rewrite.instead(matmul.output[0], [matmul, node("Add", [matmul.output[0], name], layer.output)])


class _Pairs:
    """Puts one quantize–dequantize pair on a value, however many matmuls read it."""

    def __init__(self, rewrite: Rewrite, signed: bool) -> None:
        self._rewrite, self._signed = rewrite, signed
        self._made: dict[tuple[str, Range | None, bytes], str] = {}

    def of(self, name: str, range_: Range | None, smooth: Any, *, before: str) -> str:
        key = (name, range_, b"" if smooth is None else smooth.tobytes())
        if key not in self._made:
            number = sum(made[0] == name for made in self._made)
            self._made[key] = self._write(f"{name}.{number}" if number else name, name, range_, smooth, before)
        return self._made[key]

    def _write(self, base: str, name: str, range_: Range | None, smooth: Any, before: str) -> str:
        rewrite, nodes = self._rewrite, []
        if smooth is not None:
            factor = rewrite.constant(f"{base}.smooth", (1 / smooth).astype(np.float32))
            nodes.append(node("Mul", [name, factor], f"{base}.smoothed"))
            name = f"{base}.smoothed"
        if range_ is not None:
            step, zero = self._scale(base, range_)
            nodes.append(node("QuantizeLinear", [name, step, zero], f"{base}.codes"))
            nodes.append(node("DequantizeLinear", [f"{base}.codes", step, zero], f"{base}.dequantized"))
            name = f"{base}.dequantized"
        rewrite.before(before, nodes)
        return name

    def _scale(self, base: str, range_: Range) -> tuple[str, str]:
        step, point = range_.unsigned()
        zero = np.array(point, np.uint8)
        if self._signed:
            step, zero = range_.symmetric(), np.array(0, np.int8)
        constant = self._rewrite.constant
        return constant(f"{base}.step", np.array(step, np.float32)), constant(f"{base}.zero", zero)
