"""Ranges of all inputs, for every calibrator and set of rows, from one pass over the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..progress import SILENT, Progress
from ..quant_map import Range
from .calibrators import Calibrator, find, range_of
from .observe import Floats, observe
from .samples import Samples
from .statistics import Statistics
from .targets import Targets

Key = tuple[str, str]
"""A candidate: the calibrator's name and the name of its set of rows."""

Values = tuple[str, ...]
"""Values that have one range."""


def settle_ranges(
    proto: Any,
    targets: Targets,
    samples: Samples,
    algo_list: Sequence[str],
    divisors: Mapping[str, Floats],
    *,
    moving_rate: float = 0.9,
    progress: Progress = SILENT,
) -> dict[Key, dict[Values, Range | str]]:
    """By candidate, and by the values of a group or the side of a product, the range or why there is none.

    All from one pass over the rows. A group's constants are known to the last number: nothing of them is clipped.
    """
    calibrators = {name: find(name) for name in algo_list}
    wanted: dict[Values, Values] = {(side,): () for side in targets.sides}
    wanted |= {group.values: group.constants for group in targets.groups}
    values = targets.inputs | targets.sides
    moving = {
        name: _MovingAverages(ends, calibrators, wanted, moving_rate) for name, ends in (samples.batches or {}).items()
    }
    cuts = [*samples.sets.values(), *(end for ends in (samples.batches or {}).values() for end in ends)]
    total = {name: Statistics() for name in values}
    found: dict[Key, dict[Values, Range | str]] = {(algo, name): {} for name in samples.sets for algo in algo_list}
    for end, stretch in observe(
        proto, values, samples.features, samples.pad_id, cuts=cuts, divisors=divisors, progress=progress
    ):
        for name, statistics in stretch.items():
            total[name].merge(statistics)
        for averages in moving.values():
            averages.add(end, stretch)
        for name in [name for name, size in samples.sets.items() if size == end]:
            for together, constants in wanted.items():
                varying, fixed = (_joined(total, one) for one in (together, constants))
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
        self._ends, self._calibrators, self._wanted, self._rate = set(ends), calibrators, tuple(wanted), rate
        self._accum = {(algo, values): 0.0 for algo in calibrators for values in self._wanted}
        self._state = 0.0
        self._batch: dict[str, Statistics] = {}

    def add(self, end: int, stretch: Mapping[str, Statistics]) -> None:
        """Fold in a stretch; where a batch ends with it, the batch's thresholds."""
        for name, statistics in stretch.items():
            self._batch.setdefault(name, Statistics()).merge(statistics)
        if end in self._ends:
            self._state = self._rate * self._state + 1
            for values in self._wanted:
                statistics = _joined(self._batch, values)
                for algo, calibrator in self._calibrators.items():
                    known = self._accum[algo, values]
                    self._accum[algo, values] = self._rate * known + calibrator.settle(statistics)
            self._batch = {}

    def threshold(self, algo: str, values: Values) -> float:
        """The average after the last batch that ended."""
        return self._accum[algo, values] / self._state
