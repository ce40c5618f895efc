"""Whether an engine's INT8 sums saturate on this machine: measured, as flags can lie in virtual machines."""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, nearest
from .cpu import EXACT_CLASSES, cpu
from .engine import warm

Product = Callable[[NDArray[np.uint8]], NDArray[Any]]
"""Inputs [rows, 64] to sums [rows, 64]."""

EXACT = 64_770
"""255·127 + 255·127. Where pairs are summed in 16 bits (pmaddubsw) it comes out as 32 767."""

WIDTH = 64
"""Rows and columns of the weight: whole vectors on every kernel, and still done in microseconds."""

# The base install has no package to write ONNX with. tests/engines/test_engine_saturation.py makes the same two graphs.
# Both: input x [rows, 64], a constant weight [64, 64] of s8 127s, output y [rows, 64].
MATMUL_INTEGER = base64.b64decode(
    "CAg6oQEKNwoFc2hhcGUSAXciD0NvbnN0YW50T2ZTaGFwZSoaCgV2YWx1ZSoOCAEQAyoBf0IFdmFsdWWgAQQKGAoBeAoBdxIBeSIN"
    "TWF0TXVsSW50ZWdlchIJdHdvX3Rlcm1zKg8IAhAHOgJAQEIFc2hhcGVaFwoBeBISChAIAhIMCgYSBHJvd3MKAghAYhcKAXkSEgoQ"
    "CAYSDAoGEgRyb3dzCgIIQEIECgAQDQ=="
)
QDQ_MATMUL = base64.b64decode(
    "CAg6pgIKHwoBeAoDb25lCgJ1OBIBcSIOUXVhbnRpemVMaW5lYXIKIQoBcQoDb25lCgJ1OBIBZCIQRGVxdWFudGl6ZUxpbmVhcgo3"
    "CgVzaGFwZRIBdyIPQ29uc3RhbnRPZlNoYXBlKhoKBXZhbHVlKg4IARADKgF/QgV2YWx1ZaABBAohCgF3CgNvbmUKAnM4EgFmIhBE"
    "ZXF1YW50aXplTGluZWFyChEKAWQKAWYSAXkiBk1hdE11bBIJdHdvX3Rlcm1zKg8IAhAHOgJAQEIFc2hhcGUqDRABIgQAAIA/QgNv"
    "bmUqCRACKgEAQgJ1OCoJEAMqAQBCAnM4WhcKAXgSEgoQCAESDAoGEgRyb3dzCgIIQGIXCgF5EhIKEAgBEgwKBhIEcm93cwoCCEBC"
    "BAoAEA0="
)


def effective_class(engine: str, flags_class: str | None = None) -> str:
    """The CPU class for an engine's INT8 graphs: what the flags say, unless a measurement says otherwise.

    Costs nothing where the flags promise no exact sums; else, once a process, what `saturates` costs.

    >>> effective_class("onnxruntime", "avx2")
    'avx2'
    """
    says = cpu().cpu_class if flags_class is None else flags_class
    return "avx2" if says in EXACT_CLASSES and engine in PRODUCTS and saturates(engine) else says


@functools.cache
def saturates(engine: str) -> bool:
    """Multiply two u8 255s with two s8 127s on an engine, and look whether the sum is right.

    10 ms on ONNX Runtime, up to 0.4 s on OpenVINO, imports apart; once a process. OpenVINO's s8 inputs, which it
    shifts to u8, go wrong on the same machines (255 came out for 2·127·127), so that one u8 product stands for both.
    """
    if engine not in PRODUCTS:
        raise UserError(f"The engine '{engine}' runs no INT8 graphs.", hint=nearest(engine, PRODUCTS))
    warm(engine)
    product = PRODUCTS[engine]()
    # One row takes the matrix-vector kernels, sixteen the blocked ones.
    return any(bool((product(_two_terms(rows)) != EXACT).any()) for rows in (1, 16))


def _two_terms(rows: int) -> NDArray[np.uint8]:
    x = np.zeros((rows, WIDTH), np.uint8)
    x[:, :2] = 255
    return x


def _onnxruntime() -> Product:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(MATMUL_INTEGER, options, providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(session.run(None, {"x": x})[0])


def _openvino() -> Product:
    import openvino

    core = openvino.Core()
    # It has no integer product of its own: it makes one of a quantized input, a quantized weight and a MatMul.
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(io.BytesIO(QDQ_MATMUL)), "CPU", settings)
    return lambda x: np.array(compiled({"x": x.astype(np.float32)})[0])


PRODUCTS: dict[str, Callable[[], Product]] = {"onnxruntime": _onnxruntime, "openvino": _openvino}
"""How to load the graph into each engine that runs INT8."""
