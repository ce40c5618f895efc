"""Where training starts: the `QuantMap` of PTQ, of several calibrators the one that moves the logits least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from .. import engines
from ..errors import UserError
from ..measure.fidelity import mean_abs_logit_change
from ..progress import SILENT, Progress
from ..quant_map import REASONS, QuantMap
from ..quantize.observe import watch
from ..quantize.ptq import PtqSettings, ptq
from ..quantize.samples import Samples
from ..quantize.targets import Targets
from ..runtime.batches import run
from ..tasks import Feature
from .model import FakeQuantized
from .settings import QatSettings

JUDGING = 512
"""Windows that choose the calibrator, at most: with 64, MRPC's took one whose logits move 1.6 times as far."""


def find_start(
    model: nn.Module,
    proto: Any,
    targets: Targets,
    samples: Samples,
    settings: QatSettings,
    judging: Sequence[Feature],
    *,
    centred_axis: int | None = None,
    seed: int = 42,
    progress: Progress = SILENT,
) -> QuantMap:
    """PTQ of the model's graph on the largest set of rows, by the calibrator that moves logits of `judging` least."""
    name = max(samples.sets, key=lambda one: samples.sets[one])
    whole = replace(samples, sets={name: samples.sets[name]}, batches=None)
    how = PtqSettings(
        algo_list=settings.algo_list,
        weight_quantize_type=settings.weight_quantize_type,
        smooth=settings.smooth,
        cpu_classes=settings.cpu_classes,
        seed=seed,
    )
    maps = list(ptq(proto, targets, whole, how, progress=progress).values())
    if not maps[0].layers:
        reasons = sorted({REASONS[reason] for reason in maps[0].left_float.values()})
        raise UserError(f"The step 'qat' would leave everything float: {'; '.join(reasons)}.")
    if len(maps) == 1:
        return maps[0]
    rows = judging[:JUDGING]
    exact = run(engines.load("torch", model), rows, samples.pad_id)

    def moved(quant_map: QuantMap) -> float:
        rounded = engines.load("torch", FakeQuantized(model, quant_map, targets, settings).model)
        return mean_abs_logit_change(exact, run(rounded, rows, samples.pad_id), centred_axis)

    return min(maps, key=moved)


def first_position_only(proto: Any, targets: Targets, samples: Samples) -> tuple[str, ...]:
    """Groups of which the graph computes no more than a row's first position, seen on two rows."""
    rows = sorted(samples.features, key=len)[-2:]
    tokens = sum(len(feature) for feature in rows)
    seen: dict[str, int] = {}
    for values in watch(proto, targets.inputs, rows, samples.pad_id, title="look"):
        for name, array in values.items():
            seen[name] = seen.get(name, 0) + len(array)
    short = {name for name, count in seen.items() if count == len(rows) < tokens}
    return tuple(group.name for group in targets.groups if all(name in short for name in group.values))
