"""Ranges of all inputs, for every calibrator and set of rows, from one pass over the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..progress import SILENT, Progress
from ..quant_map import Range
from .calibrators import find, range_of
from .observe import Floats, observe
from .samples import Samples
from .statistics import Statistics
from .targets import Targets

Key = tuple[str, str]
"""A candidate: the calibrator's name and the name of its set of rows."""


def settle_ranges(
    proto: Any,
    targets: Targets,
    samples: Samples,
    algo_list: Sequence[str],
    divisors: Mapping[str, Floats],
    *,
    moving_rate: float = 0.9,
    progress: Progress = SILENT,
) -> dict[Key, dict[str, Range | str]]:
    """By candidate and value the range, or the reason why there is none; all from one pass over the rows."""
    values = dict.fromkeys(targets.inputs, 1)
    for product in targets.products:
        values |= {product.left: 2, product.right: 2 if product.kind == "context" else 3}
    together = _together(targets)
    calibrators = {name: find(name) for name in algo_list}
    cuts = sorted({*samples.sets.values(), *(end for ends in (samples.batches or {}).values() for end in ends)})
    total = {name: Statistics() for name in values}
    moving: dict[tuple[Key, str], _MovingAverage] = {}
    found: dict[Key, dict[str, Range | str]] = {}
    stretches: dict[str, dict[str, Statistics]] = {}
    for end, stretch in observe(
        proto, values, samples.features, samples.pad_id, cuts=cuts, divisors=divisors, progress=progress
    ):
        for name, statistics in stretch.items():
            total[name].merge(statistics)
        if samples.batches is not None:
            for set_name, ends in samples.batches.items():
                batch = stretches.setdefault(set_name, {name: Statistics() for name in values})
                for name, statistics in stretch.items():
                    batch[name].merge(statistics)
                if end in ends:
                    for algo, calibrator in calibrators.items():
                        for name, statistics in _joined(batch, together).items():
                            average = moving.setdefault(((algo, set_name), name), _MovingAverage(moving_rate))
                            average.add(calibrator.settle(statistics))
                    del stretches[set_name]
        for set_name in [name for name, size in samples.sets.items() if size == end]:
            for algo, calibrator in calibrators.items():
                key = (algo, set_name)
                found[key] = {}
                for name, statistics in _joined(total, together).items():
                    averaged = moving.get((key, name))
                    threshold = averaged.value if averaged else calibrator.settle(statistics)
                    found[key][name] = _range(statistics, threshold)
    return {(algo, name): found[algo, name] for name in samples.sets for algo in algo_list}


def _range(statistics: Statistics, threshold: float) -> Range | str:
    if not statistics.finite:
        return "not_finite"
    if not statistics.samples:
        return "unseen"
    return range_of(statistics, threshold)


def _together(targets: Targets) -> dict[str, tuple[str, ...]]:
    """Values that must have one range, as one weight serves all of them."""
    reads: dict[str, list[str]] = {}
    for layer in targets.layers:
        reads.setdefault(layer.name, []).append(layer.input)
    return {value: tuple(dict.fromkeys(values)) for values in reads.values() for value in values if len(values) > 1}


def _joined(statistics: Mapping[str, Statistics], together: Mapping[str, tuple[str, ...]]) -> dict[str, Statistics]:
    joined: dict[tuple[str, ...], Statistics] = {}
    for values in together.values():
        if values not in joined:
            joined[values] = Statistics()
            for value in values:
                joined[values].merge(statistics[value])
    return {name: joined[together[name]] if name in together else own for name, own in statistics.items()}


class _MovingAverage:
    """Paddle's: accum = r·accum + x, state = r·state + 1, value = accum / state."""

    def __init__(self, rate: float) -> None:
        self._rate, self._accum, self._state = rate, 0.0, 0.0

    def add(self, value: float) -> None:
        self._accum = self._rate * self._accum + value
        self._state = self._rate * self._state + 1

    @property
    def value(self) -> float:
        return self._accum / self._state
