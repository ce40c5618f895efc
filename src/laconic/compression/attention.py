"""The products of attention: which become integers, for which CPU classes, and whether that does harm."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import onnx

from .. import engines
from ..engines import installed
from ..engines.cpu import EXACT_CLASSES
from ..graphs.layers import Kind
from ..graphs.write_qdq import write_qdq
from ..measure.fidelity import mean_abs_logit_change
from ..quant_map import QuantMap
from ..quantize.ranges import Key
from ..quantize.samples import Samples
from ..runtime.batches import run
from .emulate import write_emulated
from .options import CompressOptions

MOST = 1.25
"""Times as far as without them the products may move the logits, in the geometric mean of the calibrators: one alone
may be 0.9 to 1.35 by chance (MRPC, TNEWS). Probabilities in 256 steps move them by 1.3 to 7 times as far."""
ROWS, TINY = 128, 1e-9
"""Windows that tell it, at most; what counts as no move at all."""


def kinds(options: CompressOptions) -> tuple[Kind, ...]:
    """The products to calibrate. `auto` takes QKᵀ where OpenVINO is to run: see `settle_products`."""
    if options.quantize_attention == "auto":
        return ("scores",) if "openvino" in (options.engines or installed()) else ()
    return ("scores", "context") if options.quantize_attention == "on" else ()


def settle_products(
    proto: Any, maps: Mapping[Key, QuantMap], samples: Samples, centred_axis: int | None
) -> dict[Key, QuantMap]:
    """What `auto` makes of calibrated products: for CPUs with 32-bit sums alone, and only where they do no harm.

    There OpenVINO gains 6 to 13 % from QKᵀ, and loses 3 to 10 % on avx2; ONNX Runtime gains at length 128 and loses at
    384. PV stays float: of a long row most probabilities are below one of 256 steps. Whether QKᵀ does harm is seen on
    rows that calibrate nothing, for all calibrators together: else the least faithful could be the fastest.
    """
    if not any(quant_map.products for quant_map in maps.values()):
        return dict(maps)
    with tempfile.TemporaryDirectory(prefix="laconic-") as scratch:
        place, rows = Path(scratch), (samples.judging or samples.features)[:ROWS]
        onnx.save_model(proto, place / "fp32.onnx")
        exact = run(engines.load("onnxruntime", place / "fp32.onnx"), rows, samples.pad_id)

        def moved(quant_map: QuantMap) -> float:
            onnx.save_model(write_qdq(proto, quant_map, signed=False, signed_sides=True), place / "int8.onnx")
            runner = engines.load("onnxruntime", write_emulated(place / "int8.onnx", place / "emulated.onnx"))
            return mean_abs_logit_change(exact, run(runner, rows, samples.pad_id), centred_axis)

        ratios = [max(moved(one), TINY) / max(moved(replace(one, products={})), TINY) for one in maps.values()]
        if geometric_mean(ratios) <= MOST:
            return {key: replace(one, product_classes=EXACT_CLASSES) for key, one in maps.items()}
    return {
        key: replace(one, products={}, left_float={**one.left_float, **dict.fromkeys(one.products, "harmful")})
        for key, one in maps.items()
    }
