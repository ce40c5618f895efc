"""ONNX Runtime's own graph: u8 inputs, s8 weights, integer matmuls that give float with the bias inside.

On avx2 this form is the fastest there is (1.66 × FP32 at batch 16 where Q/DQ pairs on outputs too give 1.45): see
benchmarks/results. Quantized outputs and s8 inputs are slower, and the former less exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..quant_map import QuantLayer, QuantMap, Range
from .layers import Layer, find_layers, find_products
from .rewrite import MICROSOFT, Rewrite, node
from .write_tables import write_tables


def write_onnxruntime(proto: Any, quant_map: QuantMap) -> Any:
    """Give a new graph in which everything that the map holds is integer; the old one stays as it is."""
    rewrite = Rewrite(proto)
    codes = _Codes(rewrite)
    for layer in find_layers(proto):
        if layer.name in quant_map.layers:
            _write_layer(rewrite, codes, layer, quant_map.layers[layer.name])
    for product in find_products(proto):
        if product.name in quant_map.products:
            ranges = quant_map.products[product.name]
            left = codes.of(product.left, ranges.left, None, before=product.name)
            right = codes.of(product.right, ranges.right, None, before=product.name)
            inputs = [left.codes, right.codes, left.step, right.step, left.zero, right.zero]
            rewrite.instead(product.name, [node("MatMulIntegerToFloat", inputs, product.name, domain=MICROSOFT)])
    write_tables(rewrite, quant_map)
    return rewrite.finish()


def _write_layer(rewrite: Rewrite, codes: _Codes, layer: Layer, quantized: QuantLayer) -> None:
    value = codes.of(layer.input, quantized.range, quantized.smooth, before=layer.matmul)
    weight = rewrite.constant(f"{layer.name}.int8", quantized.integers)
    scales = rewrite.constant(f"{layer.name}.scales", quantized.scales)
    bias = layer.bias or ""
    if quantized.bias is not None:
        bias = rewrite.constant(f"{layer.name}.bias", quantized.bias)
    inputs = [value.codes, weight, value.step, scales, value.zero, "", bias]
    written = node("MatMulIntegerToFloat", inputs if bias else inputs[:5], layer.output, domain=MICROSOFT)
    rewrite.instead(layer.matmul, [written])
    if layer.output != layer.matmul:
        rewrite.instead(layer.output, [])


class _Value:
    """Names of a quantized value: its codes, their step and zero point."""

    def __init__(self, name: str) -> None:
        self.codes, self.step, self.zero = f"{name}.codes", f"{name}.step", f"{name}.zero"


class _Codes:
    """Quantizes each value once, however many matmuls read it."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        self._made: dict[tuple[str, Range | None, bytes], _Value] = {}

    def of(self, name: str, range_: Range | None, smooth: Any, *, before: str) -> _Value:
        key = (name, range_, b"" if smooth is None else smooth.tobytes())
        if key not in self._made:
            number = sum(made[0] == name for made in self._made)
            self._made[key] = self._write(f"{name}.{number}" if number else name, name, range_, smooth, before)
        return self._made[key]

    def _write(self, base: str, name: str, range_: Range | None, smooth: Any, before: str) -> _Value:
        rewrite, value, nodes = self._rewrite, _Value(base), []
        if smooth is not None:
            factor = rewrite.constant(f"{base}.smooth", (1 / smooth).astype(np.float32))
            nodes.append(node("Mul", [name, factor], f"{base}.smoothed"))
            name = f"{base}.smoothed"
        if range_ is None:
            dynamic = node("DynamicQuantizeLinear", [name], value.codes)
            dynamic.output.extend([value.step, value.zero])
            nodes.append(dynamic)
        else:
            step, zero = range_.unsigned()
            rewrite.constant(value.step, np.array(step, np.float32))
            rewrite.constant(value.zero, np.array(zero, np.uint8))
            nodes.append(node("QuantizeLinear", [name, value.step, value.zero], value.codes))
        rewrite.before(before, nodes)
        return value
