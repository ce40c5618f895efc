"""Static INT8 from calibration rows: look, smooth, observe once, settle every range, round the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..progress import SILENT, Progress
from ..quant_map import QuantLayer, QuantMap, QuantProduct, Range
from .dynamic import valid_on
from .observe import Floats
from .ranges import Key, Values, settle_ranges
from .refine import refine
from .samples import Samples
from .scout import Glimpse, scout
from .smooth import Smoothing, choose_smoothing
from .targets import Targets
from .weights import QuantWeight, quantize_weight


@dataclass(frozen=True)
class PtqSettings:
    """How to quantize; names and meanings are those of the options."""

    algo_list: tuple[str, ...] = ("mse", "KL", "min_max")
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
    are; AdaRound and bias correction run them, and the rows that judge, once more. Memory does not grow with the rows.
    """
    glimpses = scout(proto, targets.inputs, samples.features, samples.pad_id, seed=settings.seed, progress=progress)
    divisors = _divisors(targets, glimpses, settings.smooth)
    weights = _weights(targets, glimpses, divisors, settings)
    settled = settle_ranges(
        proto, targets, samples, settings.algo_list, divisors, moving_rate=settings.moving_rate, progress=progress
    )
    maps = {key: _map(targets, ranges, divisors, weights, settings) for key, ranges in settled.items()}
    if settings.adaround or settings.bias_correction:
        return refine(
            proto,
            targets,
            samples,
            maps,
            adaround=settings.adaround,
            bias_correction=settings.bias_correction,
            cpu_classes=settings.cpu_classes,
            progress=progress,
        )
    return maps


def _map(
    targets: Targets,
    ranges: Mapping[Values, Range | str],
    divisors: Mapping[str, Floats],
    weights: Mapping[str, QuantWeight],
    settings: PtqSettings,
) -> QuantMap:
    left_float = dict(targets.left_float)
    layers = {}
    for group in targets.groups:
        found = ranges[group.values]
        for name in group.reads:
            if isinstance(found, str):
                left_float[name] = found
            else:
                layers[name] = QuantLayer(found, weights[name].integers, weights[name].scales, divisors.get(group.name))
    products = {}
    for product in targets.products:
        left, right = ranges[product.left,], ranges[product.right,]
        if isinstance(left, Range) and isinstance(right, Range):
            products[product.name] = QuantProduct(left, right)
        else:
            left_float[product.name] = left if isinstance(left, str) else str(right)
    return QuantMap(layers, {}, products, left_float, valid_on(settings.cpu_classes))


def _divisors(targets: Targets, glimpses: Mapping[str, Glimpse], smooth: str | float) -> dict[str, Floats]:
    """The smoothing vector of each input that is smoothed."""
    divisors: dict[str, Floats] = {}
    if smooth == "off":
        return divisors
    for group in targets.groups:
        # A weight that is used in several places (ALBERT) cannot be scaled for the input of one of them.
        if len(group.values) > 1 or group.constants or group.name in targets.sides:
            continue
        glimpse = glimpses[group.name]
        if not np.isfinite(glimpse.channel_max).all() or not glimpse.channel_max.any():
            continue
        weights = [targets.weights[name] for name in group.reads]
        chosen = choose_smoothing(glimpse.tokens, weights) if smooth == "auto" else Smoothing(float(smooth))
        if chosen is not None:
            weight_max = np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0)
            divisors[group.name] = chosen.vector(glimpse.channel_low, glimpse.channel_high, weight_max)
    return divisors


def _weights(
    targets: Targets, glimpses: Mapping[str, Glimpse], divisors: Mapping[str, Floats], settings: PtqSettings
) -> dict[str, QuantWeight]:
    weights: dict[str, QuantWeight] = {}
    for group in targets.groups:
        divisor = divisors.get(group.name)
        for name, inputs in group.reads.items():
            weight, tokens = targets.weights[name], np.concatenate([glimpses[value].tokens for value in inputs])
            if divisor is not None:
                weight, tokens = weight * divisor[:, None], tokens / divisor
            moments = np.square(tokens).mean(axis=0) if tokens.size and np.isfinite(tokens).all() else None
            weights[name] = quantize_weight(
                weight, settings.weight_quantize_type, cpu_classes=settings.cpu_classes, moments=moments
            )
    return weights
