"""Where training starts: the `QuantMap` of PTQ, of several calibrators the one that moves the logits least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import nn

from .. import engines
from ..errors import UserError
from ..measure.score import mean_abs_logit_change
from ..progress import SILENT, Progress
from ..quant_map import REASONS, QuantMap
from ..quantize.observe import watch
from ..quantize.ptq import PtqSettings, ptq
from ..quantize.samples import Samples
from ..quantize.targets import Targets, find_targets
from ..runtime.predictor import run
from ..tasks import Feature
from .model import FakeQuantized
from .options import QatSettings

JUDGING = 512
"""Windows that choose the calibrator, at most: with 64, MRPC's took one whose logits move 1.6 times as far."""


@dataclass(frozen=True)
class Calibrated:
    """What training starts from: the model's own graph, rows that calibrate it, layers that stay float.

    `proto`: as `graphs.read.unfold` and maybe `keep_first_position` leave it.
    """

    proto: Any
    samples: Samples
    skip_layers: Sequence[str] = ()

    @cached_property
    def targets(self) -> Targets:
        """The weights to make integer."""
        return find_targets(self.proto, skip_layers=self.skip_layers)


def find_start(
    model: nn.Module,
    calibrated: Calibrated,
    settings: QatSettings,
    judging: Sequence[Feature],
    *,
    centred_axis: int | None = None,
    seed: int = 42,
    progress: Progress = SILENT,
) -> QuantMap:
    """PTQ of the model's graph on the largest set of rows, by the calibrator that moves logits of `judging` least."""
    samples, targets = calibrated.samples, calibrated.targets
    largest = max(samples.sets, key=lambda name: samples.sets[name])
    rows = replace(samples, sets={largest: samples.sets[largest]}, batches=None)
    how = PtqSettings(
        algo_list=settings.algo_list,
        weight_quantize_type=settings.weight_quantize_type,
        smooth=settings.smooth,
        cpu_classes=settings.cpu_classes,
        seed=seed,
    )
    maps = list(ptq(calibrated.proto, targets, rows, how, progress=progress).values())
    if not maps[0].layers:
        reasons = sorted({REASONS[reason] for reason in maps[0].left_float.values()})
        raise UserError(f"The step 'qat' would leave everything float: {'; '.join(reasons)}.")
    if len(maps) == 1:
        return maps[0]
    judging = judging[:JUDGING]
    exact = run(engines.load("torch", model), judging, samples.pad_id)

    def moved(quant_map: QuantMap) -> float:
        rounded = engines.load("torch", FakeQuantized(model, quant_map, targets, settings).model)
        return mean_abs_logit_change(exact, run(rounded, judging, samples.pad_id), centred_axis)

    return min(maps, key=moved)


def first_position_only(calibrated: Calibrated) -> tuple[str, ...]:
    """Groups of which the graph computes no more than a row's first position, seen on two rows."""
    targets, samples = calibrated.targets, calibrated.samples
    rows = sorted(samples.features, key=len)[-2:]
    tokens = sum(len(feature) for feature in rows)
    seen: dict[str, int] = {}
    for values in watch(calibrated.proto, targets.inputs, rows, samples.pad_id, title="look"):
        for name, array in values.items():
            seen[name] = seen.get(name, 0) + len(array)
    short = {name for name, count in seen.items() if count == len(rows) < tokens}
    return tuple(group.name for group in targets.groups if all(name in short for name in group.values))
