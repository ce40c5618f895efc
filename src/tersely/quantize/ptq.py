"""INT8 for a graph: static from calibration rows (look, smooth, observe once, settle ranges, round), or dynamic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engines.cpu import EXACT_CLASSES
from ..progress import SILENT, Progress
from ..quant_map import Floats, QuantLayer, QuantMap, QuantProduct, Range
from .calibrators import Calibrator, find, range_of
from .observe import observe
from .refine import refine
from .samples import Samples
from .smooth import InputSample, Smoothing, choose_smoothing, largest_weights, sample_inputs
from .statistics import Statistics
from .targets import Targets
from .weights import QuantWeight, quantize_weight

Key = tuple[str, str]
"""A candidate: the calibrator's name and the name of its set of rows."""

Values = tuple[str, ...]
"""Values that have one range."""


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
    seen = sample_inputs(proto, targets.inputs, samples.features, samples.pad_id, seed=settings.seed, progress=progress)
    divisors = _divisors(targets, seen, settings.smooth)
    weights = _weights(targets, seen, divisors, settings)
    settled = settle_ranges(proto, targets, samples, settings, divisors, progress=progress)
    maps = {key: _map(targets, ranges, divisors, weights, settings) for key, ranges in settled.items()}
    if settings.adaround or settings.bias_correction:
        return refine(proto, targets, samples, maps, settings, progress=progress)
    return maps


def dynamic(targets: Targets, weight_quantize_type: str = "channel_wise_abs_max", cpu_classes: str = "all") -> QuantMap:
    """A `QuantMap` whose layers have no range: they take it from each batch at run time, and no rows are needed."""
    layers = {}
    for layer in targets.layers:
        if layer.name not in layers:
            weight = quantize_weight(targets.weights[layer.name], weight_quantize_type, cpu_classes=cpu_classes)
            layers[layer.name] = QuantLayer(None, weight.integers, weight.scales)
    left_float = targets.left_float | {product.name: "not_asked" for product in targets.products}
    return QuantMap(layers, left_float=left_float, cpu_classes=_valid_on(cpu_classes))


def _valid_on(cpu_classes: str) -> tuple[str, ...]:
    """The classes on which integers made for `--cpu_classes` are right."""
    return ("all",) if cpu_classes == "all" else EXACT_CLASSES


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
    return QuantMap(layers, {}, products, left_float, _valid_on(settings.cpu_classes))


def _divisors(targets: Targets, seen: Mapping[str, InputSample], smooth: str | float) -> dict[str, Floats]:
    """The smoothing vector of each input that is smoothed."""
    divisors: dict[str, Floats] = {}
    if smooth == "off":
        return divisors
    for group in targets.groups:
        # A weight that is used in several places (ALBERT) cannot be scaled for the input of one of them.
        if len(group.values) > 1 or group.constants or group.name in targets.sides:
            continue
        sample = seen[group.name]
        if not np.isfinite(sample.channel_max).all() or not sample.channel_max.any():
            continue
        weights = [targets.weights[name] for name in group.reads]
        chosen = choose_smoothing(sample.tokens, weights) if smooth == "auto" else Smoothing(float(smooth))
        if chosen is not None:
            divisors[group.name] = chosen.vector(sample.channel_low, sample.channel_high, largest_weights(weights))
    return divisors


def _weights(
    targets: Targets, seen: Mapping[str, InputSample], divisors: Mapping[str, Floats], settings: PtqSettings
) -> dict[str, QuantWeight]:
    weights: dict[str, QuantWeight] = {}
    for group in targets.groups:
        divisor = divisors.get(group.name)
        for name, inputs in group.reads.items():
            weight, tokens = targets.weights[name], np.concatenate([seen[value].tokens for value in inputs])
            if divisor is not None:
                weight, tokens = weight * divisor[:, None], tokens / divisor
            moments = np.square(tokens).mean(axis=0) if tokens.size and np.isfinite(tokens).all() else None
            weights[name] = quantize_weight(
                weight, settings.weight_quantize_type, cpu_classes=settings.cpu_classes, moments=moments
            )
    return weights


def settle_ranges(
    proto: Any,
    targets: Targets,
    samples: Samples,
    settings: PtqSettings,
    divisors: Mapping[str, Floats],
    *,
    progress: Progress = SILENT,
) -> dict[Key, dict[Values, Range | str]]:
    """By candidate, and by the values of a group or the side of a product, the range or why there is none.

    All from one pass over the rows. A group's constants are known to the last number: nothing of them is clipped.
    """
    calibrators = {name: find(name) for name in settings.algo_list}
    wanted: dict[Values, Values] = {(side,): () for side in targets.sides}
    wanted |= {group.values: group.constants for group in targets.groups}
    values = targets.inputs | targets.sides
    batches = samples.batches or {}
    moving = {name: _MovingAverages(ends, calibrators, wanted, settings.moving_rate) for name, ends in batches.items()}
    cuts = [*samples.sets.values(), *(end for ends in batches.values() for end in ends)]
    total = {name: Statistics() for name in values}
    found: dict[Key, dict[Values, Range | str]] = {(algo, name): {} for name in samples.sets for algo in calibrators}
    for end, stretch in observe(
        proto, values, samples.features, samples.pad_id, cuts=cuts, divisors=divisors, progress=progress
    ):
        for name, statistics in stretch.items():
            total[name].merge(statistics)
        for averages in moving.values():
            averages.add(end, stretch)
        for name in [name for name, size in samples.sets.items() if size == end]:
            for together, constants in wanted.items():
                varying, fixed = _joined(total, together), _joined(total, constants)
                for algo, calibrator in calibrators.items():
                    averaged = moving[name].threshold(algo, together) if name in moving else None
                    threshold = calibrator.settle(varying) if averaged is None else averaged
                    found[algo, name][together] = _range(varying, threshold, fixed)
    return found


def _range(varying: Statistics, threshold: float, fixed: Statistics) -> Range | str:
    if not (varying.finite and fixed.finite):
        return "not_finite"
    if not varying.samples:
        return "unseen"
    settled = range_of(varying, threshold)
    return Range(min(settled.low, fixed.low), max(settled.high, fixed.high))


def _joined(statistics: Mapping[str, Statistics], names: Values) -> Statistics:
    if len(names) == 1:
        return statistics[names[0]]
    joined = Statistics()
    for name in names:
        joined.merge(statistics[name])
    return joined


class _MovingAverages:
    """Thresholds averaged over batches as Paddle does: accum = r·accum + x, state = r·state + 1, accum / state."""

    def __init__(
        self, ends: Sequence[int], calibrators: Mapping[str, Calibrator], wanted: Iterable[Values], rate: float
    ) -> None:
        self._ends, self._calibrators, self._rate = set(ends), calibrators, rate
        self._accum = {(algo, values): 0.0 for algo in calibrators for values in wanted}
        self._state = 0.0
        self._batch: dict[str, Statistics] = {}

    def add(self, end: int, stretch: Mapping[str, Statistics]) -> None:
        """Fold in a stretch; where a batch ends with it, the batch's thresholds."""
        for name, statistics in stretch.items():
            self._batch.setdefault(name, Statistics()).merge(statistics)
        if end in self._ends:
            self._state = self._rate * self._state + 1
            for (algo, values), known in self._accum.items():
                settled = self._calibrators[algo].settle(_joined(self._batch, values))
                self._accum[algo, values] = self._rate * known + settled
            self._batch = {}

    def threshold(self, algo: str, values: Values) -> float:
        """The average after the last batch that ended."""
        return self._accum[algo, values] / self._state
