"""ONNX Runtime's own graph: u8 inputs, s8 weights, integer matmuls that give float with the bias inside.

On avx2 this form is the fastest there is (1.66 × FP32 at batch 16 where Q/DQ pairs on outputs too give 1.45): see
benchmarks/results. Quantized outputs and s8 inputs are slower, and the former less exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..quant_map import QuantLayer, QuantMap, Range
from .layers import LinearLayer, find_layers, find_products
from .rewrite import MICROSOFT, Inputs, Rewrite, matched, node, write_tables


def write_onnxruntime(proto: Any, quant_map: QuantMap) -> Any:
    """Give a new graph in which all that the map holds is integer; the old one, from `unfold`, stays as it is."""
    rewrite = Rewrite(proto)
    inputs: Inputs[_Codes] = Inputs(rewrite, lambda name, range_: _quantize(rewrite, name, range_))
    for layer, quantized in matched(find_layers(proto), quant_map.layers):
        _write_layer(rewrite, inputs.of(layer.input, quantized.range, quantized.smooth), layer, quantized)
    for product, ranges in matched(find_products(proto), quant_map.products):
        left, right = inputs.of(product.left, ranges.left), inputs.of(product.right, ranges.right)
        read = [left.codes, right.codes, left.step, right.step, left.zero, right.zero]
        rewrite.instead(product.name, [node("MatMulIntegerToFloat", read, product.name, domain=MICROSOFT)])
    write_tables(rewrite, quant_map)
    return rewrite.finish()


class _Codes(NamedTuple):
    """Names of a quantized value: its codes, their step and zero point."""

    codes: str
    step: str
    zero: str


def _quantize(rewrite: Rewrite, name: str, range_: Range | None) -> tuple[_Codes, list[Any]]:
    codes = rewrite.new(f"{name}.codes")
    if range_ is None:
        value = _Codes(codes, rewrite.new(f"{codes}.step"), rewrite.new(f"{codes}.zero"))
        dynamic = node("DynamicQuantizeLinear", [name], codes)
        dynamic.output.extend([value.step, value.zero])
        return value, [dynamic]
    step, zero = range_.unsigned()
    value = _Codes(
        codes,
        rewrite.constant(f"{codes}.step", np.array(step, np.float32)),
        rewrite.constant(f"{codes}.zero", np.array(zero, np.uint8)),
    )
    return value, [node("QuantizeLinear", [name, value.step, value.zero], codes)]


def _write_layer(rewrite: Rewrite, value: _Codes, layer: LinearLayer, quantized: QuantLayer) -> None:
    weight = rewrite.constant(f"{layer.name}.int8", quantized.integers)
    scales = rewrite.constant(f"{layer.name}.scales", quantized.scales)
    bias = layer.bias or ""
    if quantized.bias is not None:
        bias = rewrite.constant(f"{layer.name}.bias", quantized.bias)
    read = [value.codes, weight, value.step, scales, value.zero, "", bias]
    written = node("MatMulIntegerToFloat", read if bias else read[:5], layer.output, domain=MICROSOFT)
    rewrite.instead(layer.matmul, [written])
    if layer.output != layer.matmul:
        rewrite.instead(layer.output, [])
