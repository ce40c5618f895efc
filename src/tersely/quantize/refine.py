"""What is learnt of a layer once its ranges stand: the rounding of its weights, the shift of its bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..progress import SILENT, Progress
from ..quant_map import Floats, QuantLayer, QuantMap, Range
from .adaround import better_rounding
from .bias import corrected_bias
from .moments import Feed, Moments, stream_moments
from .ranges import Key
from .samples import Samples
from .targets import Targets
from .weights import QuantWeight


def refine(
    proto: Any,
    targets: Targets,
    samples: Samples,
    quant_maps: Mapping[Key, QuantMap],
    *,
    adaround: bool,
    bias_correction: bool,
    cpu_classes: str,
    progress: Progress = SILENT,
) -> dict[Key, QuantMap]:
    """Learn the rounding and correct the biases of all candidates, each layer judged on rows held out.

    One pass serves all candidates (large models with AdaRound take several, see `stream_moments`), and a layer that
    has the same range in several of them is refined once. The candidates must have weights and smoothing in common.
    """
    feeds = _feeds(targets, quant_maps)
    known = {name: layer for quant_map in quant_maps.values() for name, layer in quant_map.layers.items()}
    uncertain = _several_biases(targets)
    refined: dict[tuple[str, Range | None], QuantLayer] = {}
    for portion in stream_moments(
        proto,
        list(feeds),
        (samples.features, samples.judging or samples.features),
        samples.pad_id,
        matrices=adaround,
        progress=progress,
    ):
        with progress.track("refine", sum(len(feeds[feed]) for feed in portion)) as advance:
            for feed, (learnt, held_out) in portion.items():
                for name in feeds[feed]:
                    layer = replace(known[name], range=feed.range)
                    weight = targets.weights[name]
                    weight = weight if layer.smooth is None else weight * layer.smooth[:, None]
                    if adaround:
                        layer = _rounded(weight, layer, learnt, held_out, cpu_classes)
                    if bias_correction and name not in uncertain:
                        layer = _shifted(weight, targets.biases.get(name), layer, learnt, held_out)
                    refined[name, feed.range] = layer
                    advance(1, name)
    return {
        key: replace(quant_map, layers={name: refined[name, old.range] for name, old in quant_map.layers.items()})
        for key, quant_map in quant_maps.items()
    }


def _feeds(targets: Targets, quant_maps: Mapping[Key, QuantMap]) -> dict[Feed, list[str]]:
    """What is fed to the weights, for every range that some candidate gives it, and the weights that it is fed to."""
    feeds: dict[Feed, list[str]] = {}
    for group in targets.groups:
        held = [
            quant_map.layers[name]
            for quant_map in quant_maps.values()
            for name in group.reads
            if name in quant_map.layers
        ]
        for inputs in dict.fromkeys(group.reads.values()):
            values = {value: targets.inputs[value] for value in inputs}
            names = [name for name, read in group.reads.items() if read == inputs]
            for layer in {layer.range: layer for layer in held}.values():
                if layer.range is not None:
                    feeds[Feed(values, layer.range, layer.smooth, len(layer.integers))] = names
    return feeds


def _several_biases(targets: Targets) -> set[str]:
    """Weights that are used with more than one bias: a `QuantLayer` has but one to put in the place of all."""
    biases: dict[str, set[str | None]] = {}
    for layer in targets.layers:
        biases.setdefault(layer.name, set()).add(layer.bias)
    return {name for name, found in biases.items() if len(found) > 1}


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
