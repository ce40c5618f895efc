"""One weighted matmul in all its forms, with the answers that float64 arithmetic gives: what every writer must keep."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from int8 import graph

from tersely.quant_map import QuantLayer, QuantMap, Range
from tersely.quantize.weights import quantize_weight


class Case(NamedTuple):
    """One weighted matmul in a graph of its own, and what the map says of it."""

    name: str
    lines: tuple[str, ...]
    kind: str = "channel_wise_abs_max"
    smooth: bool = False
    corrected: bool = False
    rank: int = 3


CASES = (
    Case("matmul", ("y = MatMul (x, w)",)),
    Case("bias", ("m = MatMul (x, w)", "y = Add (m, b)")),
    Case("bias first", ("m = MatMul (x, w)", "y = Add (b, m)")),
    Case("corrected bias", ("m = MatMul (x, w)", "y = Add (m, b)"), corrected=True),
    Case("bias where there was none", ("y = MatMul (x, w)",), corrected=True),
    Case("gemm", ("y = Gemm (x, w, b)",), rank=2),
    Case("gemm without bias", ("y = Gemm (x, w)",), rank=2),
    Case("gemm with corrected bias", ("y = Gemm (x, w, b)",), corrected=True, rank=2),
    Case("gemm with a bias where there was none", ("y = Gemm (x, w)",), corrected=True, rank=2),
    Case("one scale", ("m = MatMul (x, w)", "y = Add (m, b)"), kind="abs_max"),
    Case("smoothed", ("m = MatMul (x, w)", "y = Add (m, b)"), smooth=True),
    Case("all at once", ("y = MatMul (x, w)",), kind="abs_max", smooth=True, corrected=True),
)


class Layered(NamedTuple):
    """A case made: graph, map, input, and the answers that float64 arithmetic gives for u8 and for s8 codes."""

    proto: Any
    quant_map: QuantMap
    x: np.ndarray
    unsigned: np.ndarray
    signed: np.ndarray


def make_case(case: Case, wide: int = 34, out: int = 24, seed: int = 0) -> Layered:
    random = np.random.default_rng(seed)
    weight = random.normal(size=(wide, out)).astype(np.float32)
    bias, corrected = (random.normal(size=out).astype(np.float32) for _ in range(2))
    sizes = "n, l" if case.rank == 3 else "n"
    proto = graph(case.lines, {"w": weight, "b": bias}, f"float[{sizes}, {wide}] x", f"float[{sizes}, {out}] y")
    divisor = random.uniform(0.25, 4, wide).astype(np.float32) if case.smooth else None
    smoothed = weight if divisor is None else weight * divisor[:, None]
    quantized = quantize_weight(smoothed, case.kind)
    ranged = Range(-0.7, 2.3)  # s8 codes reach down to -39 only
    layer = QuantLayer(ranged, quantized.integers, quantized.scales, divisor, corrected if case.corrected else None)
    # Steps of both codes in which no number lies near the middle between two: engines divide in different ways.
    x = far_from_ties(random.uniform(-1, 2.6, (5, 7, wide)[3 - case.rank :]), ranged)
    has_bias = any("b" in node.input for node in proto.graph.node)
    added = corrected if case.corrected else bias if has_bias else 0
    real = quantized.integers.astype(np.float64) * quantized.scales
    answers = [fake(x, ranged, signed=signed) @ real + added for signed in (False, True)]
    scaled = x if divisor is None else x * divisor
    return Layered(proto, QuantMap({"w": layer}), scaled.astype(np.float32), *answers)


def far_from_ties(x: np.ndarray, range_: Range) -> np.ndarray:
    """Move numbers that lie near a boundary between two codes, of u8 or of s8, to where the nearest code is clear."""
    steps = (float(range_.unsigned()[0]), float(range_.symmetric()))
    while True:
        near = np.any([np.abs(x / step % 1 - 0.5) < 0.05 for step in steps], axis=0)
        if not near.any():
            return x
        x = x + near * 0.03 * steps[0]


def fake(x: np.ndarray, range_: Range, *, signed: bool) -> np.ndarray:
    """Quantize and dequantize in float64, as the ONNX standard says."""
    if signed:
        step = float(range_.symmetric())
        return np.clip(np.rint(x / step), -128, 127) * step
    step, zero = float(range_.unsigned()[0]), range_.unsigned()[1]
    return (np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step
