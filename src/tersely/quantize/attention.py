"""The products of attention: which become integers, for which CPU classes, and whether that does harm."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from .. import engines
from ..engines.cpu import EXACT_CLASSES
from ..graphs.layers import Kind
from ..graphs.write_emulated import write_emulated
from ..graphs.write_qdq import write_qdq
from ..measure.score import mean_abs_logit_change
from ..quant_map import QuantMap
from ..runtime.predictor import run
from .ptq import Key
from .samples import Samples

MOST = 1.05
"""Times as far as without them the products may move the logits; harm is where the 95 % interval of that lies above.
QKᵀ measured 1.03 on TNEWS and MSRA, 1.18 on CMRC; on MRPC 0.9 to 1.3, within the noise. PV: 1.3 to 7."""
WINDOWS, RESAMPLES = 128, 1000
"""Windows that tell it, at most; bootstrap samples of them."""


def kinds(quantize_attention: str, engine_names: Sequence[str] | None) -> tuple[Kind, ...]:
    """The products to calibrate. `auto` takes QKᵀ where an engine that gains is to run: see `settle_products`.

    >>> kinds("on", None), kinds("auto", ["onnxruntime"])
    (('scores', 'context'), ())
    """
    if quantize_attention == "auto":
        gains = any(engines.ENGINES[name].int8_attention for name in engine_names or engines.installed())
        return ("scores",) if gains else ()
    return ("scores", "context") if quantize_attention == "on" else ()


def settle_products(
    proto: Any, maps: Mapping[Key, QuantMap], samples: Samples, centred_axis: int | None
) -> dict[Key, QuantMap]:
    """What `auto` makes of calibrated products: for CPUs with 32-bit sums alone, and only where they do no harm.

    There OpenVINO gains 6 to 13 % from QKᵀ, and loses 3 to 10 % on avx2; ONNX Runtime's is 0.92 to 1.05 × as fast, by
    model and length. PV stays float: of a long row most probabilities are below one of 256 steps. Whether QKᵀ does harm
    is seen on rows that calibrate nothing. Harm to one calibrator is harm to all: else the least faithful, which may
    keep its products, could be chosen for its speed.
    """
    if not any(quant_map.products for quant_map in maps.values()):
        return dict(maps)
    with tempfile.TemporaryDirectory(prefix="tersely-") as scratch:
        place, rows = Path(scratch), (samples.judging or samples.features)[:WINDOWS]
        onnx.save_model(proto, place / "fp32.onnx")
        exact = run(engines.load(engines.REFERENCE, place / "fp32.onnx"), rows, samples.pad_id)

        def moved(quant_map: QuantMap) -> NDArray[np.float64]:
            """How far the logits of each window move."""
            onnx.save_model(write_qdq(proto, quant_map, signed=False, signed_sides=True), place / "int8.onnx")
            runner = engines.load(engines.REFERENCE, write_emulated(place / "int8.onnx", place / "emulated.onnx"))
            pairs = zip(exact, run(runner, rows, samples.pad_id), strict=True)
            return np.array([mean_abs_logit_change([before], [after], centred_axis) for before, after in pairs])

        if not any(is_further(moved(quant_map), moved(replace(quant_map, products={}))) for quant_map in maps.values()):
            return kept_products(maps)
    return {
        key: replace(
            quant_map, products={}, left_float={**quant_map.left_float, **dict.fromkeys(quant_map.products, "harmful")}
        )
        for key, quant_map in maps.items()
    }


def kept_products(maps: Mapping[Key, QuantMap]) -> dict[Key, QuantMap]:
    """Calibrated products as `auto` leaves them where they do no harm."""
    return {key: replace(quant_map, product_classes=EXACT_CLASSES) for key, quant_map in maps.items()}


def is_further(moves: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether moves are for certain more than `MOST` times as large in the mean as others of the same windows.

    >>> is_further(np.array([1.2, 2.4, 1.2]), np.array([1.0, 2.0, 1.0])), is_further(np.array([3, 0.1]), np.ones(2))
    (True, False)
    """
    drawn = np.random.default_rng(0).integers(0, len(moves), (RESAMPLES, len(moves)))
    low = np.percentile(moves[drawn].mean(axis=1) - MOST * others[drawn].mean(axis=1), 2.5)
    return bool(low > 0)
