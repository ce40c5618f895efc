"""Static INT8 from calibration rows: look, smooth, observe once, settle every range, round the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graphs.layers import Layer
from ..progress import SILENT, Progress
from ..quant_map import QuantLayer, QuantMap, QuantProduct, Range
from .dynamic import valid_on
from .observe import Floats
from .ranges import Key, settle_ranges
from .refine import refine
from .samples import Samples
from .scout import Glimpse, scout
from .smooth import choose_alpha, smoothing_vector
from .targets import Targets
from .weights import QuantWeight, quantize_weight


@dataclass(frozen=True)
class PtqSettings:
    """How to quantize; names and meanings are those of the options."""

    algo_list: tuple[str, ...] = ("mse", "KL")
    weight_quantize_type: str = "channel_wise_abs_max"
    adaround: bool = False
    bias_correction: bool = False
    smooth: str | float = "auto"
    moving_rate: float = 0.9
    cpu_classes: str = "all"
    seed: int = 42


def ptq(
    proto: Any, targets: Targets, samples: Samples, settings: PtqSettings, *, progress: Progress = SILENT
) -> dict[Key, QuantMap]:
    """A `QuantMap` for each calibrator and set of rows.

    The rows run through the graph twice, once to look at channels and once to observe, however many candidates there
    are; AdaRound and bias correction each add a pass per candidate. Memory does not grow with the rows.
    """
    readers = targets.inputs
    glimpses = scout(proto, dict.fromkeys(readers, 1), samples.features, samples.pad_id, seed=settings.seed)
    divisors = _divisors(targets, glimpses, settings.smooth, readers)
    weights = _weights(targets, glimpses, divisors, settings)
    maps = {}
    for key, ranges in settle_ranges(
        proto, targets, samples, settings.algo_list, divisors, moving_rate=settings.moving_rate, progress=progress
    ).items():
        layers = {}
        left_float = dict(targets.left_float)
        for layer in targets.layers:
            found = ranges[layer.input]
            if isinstance(found, str):
                left_float[layer.name] = found
            else:
                weight = weights[layer.name]
                layers[layer.name] = QuantLayer(found, weight.integers, weight.scales, divisors.get(layer.input))
        products = {}
        for product in targets.products:
            left, right = ranges[product.left], ranges[product.right]
            if isinstance(left, Range) and isinstance(right, Range):
                products[product.name] = QuantProduct(left, right)
            else:
                left_float[product.name] = left if isinstance(left, str) else str(right)
        quant_map = QuantMap(layers, {}, products, left_float, valid_on(settings.cpu_classes))
        if settings.adaround or settings.bias_correction:
            quant_map = refine(
                proto,
                targets,
                samples,
                quant_map,
                adaround=settings.adaround,
                bias_correction=settings.bias_correction,
                cpu_classes=settings.cpu_classes,
                progress=progress,
            )
        maps[key] = quant_map
    return maps


def _divisors(
    targets: Targets, glimpses: Mapping[str, Glimpse], smooth: str | float, readers: Mapping[str, list[Layer]]
) -> dict[str, Floats]:
    """The smoothing vector of each input that is smoothed."""
    if smooth == "off":
        return {}
    # A weight that several layers share (ALBERT) cannot be scaled for the input of one of them.
    uses = [layer.name for layer in targets.layers]
    shared = {layer.input for layer in targets.layers if uses.count(layer.name) > 1}
    divisors = {}
    for name in readers:
        if name in shared:
            continue
        glimpse = glimpses[name]
        if not np.isfinite(glimpse.channel_max).all() or not glimpse.channel_max.any():
            continue
        weights = [targets.weights[layer.name] for layer in readers[name]]
        alpha = choose_alpha(glimpse.tokens, weights) if smooth == "auto" else float(smooth)
        if alpha is not None:
            weight_max = np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0)
            divisors[name] = smoothing_vector(glimpse.channel_max, weight_max, alpha)
    return divisors


def _weights(
    targets: Targets, glimpses: Mapping[str, Glimpse], divisors: Mapping[str, Floats], settings: PtqSettings
) -> dict[str, QuantWeight]:
    weights: dict[str, QuantWeight] = {}
    for layer in targets.layers:
        if layer.name not in weights:
            weight, tokens = targets.weights[layer.name], glimpses[layer.input].tokens
            divisor = divisors.get(layer.input)
            if divisor is not None:
                weight, tokens = weight * divisor[:, None], tokens / divisor
            moments = np.square(tokens).mean(axis=0) if tokens.size and np.isfinite(tokens).all() else None
            weights[layer.name] = quantize_weight(
                weight, settings.weight_quantize_type, cpu_classes=settings.cpu_classes, moments=moments
            )
    return weights
