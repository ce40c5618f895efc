"""What is learnt of a layer once its ranges stand: the rounding of its weights, the shift of its bias."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..progress import SILENT, Progress
from ..quant_map import Floats, QuantLayer, QuantMap
from .adaround import better_rounding
from .bias import corrected_bias
from .moments import Moments, stream_moments
from .samples import Samples
from .targets import Targets
from .weights import QuantWeight


def refine(
    proto: Any,
    targets: Targets,
    samples: Samples,
    quant_map: QuantMap,
    *,
    adaround: bool,
    bias_correction: bool,
    cpu_classes: str,
    progress: Progress = SILENT,
) -> QuantMap:
    """Learn the rounding and correct the biases, each judged on rows held out."""
    readers = {
        value: [layer for layer in layers if layer.name in quant_map.layers]
        for value, layers in targets.inputs.items()
        if any(layer.name in quant_map.layers for layer in layers)
    }
    first = {value: quant_map.layers[layers[0].name] for value, layers in readers.items()}
    ranges = {value: layer.range for value, layer in first.items() if layer.range is not None}
    divisors = {value: layer.smooth for value, layer in first.items() if layer.smooth is not None}
    sizes = {value: len(layer.integers) for value, layer in first.items()}
    layers = dict(quant_map.layers)
    streamed = stream_moments(
        proto,
        ranges,
        divisors,
        sizes,
        (samples.features, samples.judging),
        samples.pad_id,
        matrices=adaround,
    )
    title = "adaround" if adaround else "bias correction"
    with progress.track(title, len(readers)) as advance:
        for value, (learnt, held_out) in streamed:
            for layer in readers[value]:
                weight = targets.weights[layer.name]
                known = layers[layer.name]
                weight = weight if known.smooth is None else weight * known.smooth[:, None]
                if adaround:
                    known = _rounded(weight, known, learnt, held_out, cpu_classes)
                if bias_correction:
                    known = _shifted(weight, targets.biases.get(layer.name), known, learnt, held_out)
                layers[layer.name] = known
            advance(1, value)
    return replace(quant_map, layers=layers)


def _rounded(weight: Floats, layer: QuantLayer, learnt: Moments, held_out: Moments, cpu_classes: str) -> QuantLayer:
    nearest = QuantWeight(layer.integers, layer.scales)
    better = better_rounding(weight, nearest, learnt, held_out, cpu_classes=cpu_classes)
    return replace(layer, integers=better.integers)


def _shifted(weight: Floats, bias: Floats | None, layer: QuantLayer, learnt: Moments, held_out: Moments) -> QuantLayer:
    """Correct the bias, if the mean error on the rows held out is smaller for it."""
    quantized = QuantWeight(layer.integers, layer.scales)
    corrected = corrected_bias(bias, weight, quantized, learnt["mean"], learnt["mean_quantized"])
    ideal = corrected_bias(bias, weight, quantized, held_out["mean"], held_out["mean_quantized"])
    before = np.zeros_like(ideal) if bias is None else bias
    if np.abs(ideal - corrected).sum() < np.abs(ideal - before).sum():
        return replace(layer, bias=corrected)
    return layer
