"""From plans to `QuantMap`s: which candidates there are, and which of them are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import UserError
from ..options.compress import CompressOptions
from ..progress import SILENT, Progress
from ..quant_map import REASONS, QuantMap
from ..quantize.attention import kinds, settle_products
from ..quantize.dynamic import dynamic
from ..quantize.embeddings import quantize_tables
from ..quantize.ptq import PtqSettings, ptq
from ..quantize.samples import Samples
from ..quantize.targets import find_targets
from ..strategy import DYNAMIC, MOVING, PTQ, QAT, Plan


@dataclass(frozen=True)
class Made:
    """A candidate before it is written: its name, plan and map."""

    name: str
    plan: Plan
    quant_map: QuantMap


def make(
    proto: Any,
    plans: Sequence[Plan],
    options: CompressOptions,
    samples: Samples | None,
    *,
    centred_axis: int | None = None,
    width: str | None = None,
    skip_layers: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    trained: QuantMap | None = None,
    progress: Progress = SILENT,
) -> tuple[list[Made], dict[str, str]]:
    """Every candidate of every plan; equal ones are one, and the second gives the first's name for the other.

    `width`: what names bear where a pruned model is at hand. `sensitive`: layers that are left float for the harm they
    do. `trained`: what `qat` made of the model at hand. All plans share one calibration. A plan that only prunes gives
    the graph as it is.
    """
    targets = find_targets(proto, skip_layers=skip_layers, attention=kinds(options.quantize_attention, options.engines))
    if sensitive:
        kept = tuple(layer for layer in targets.layers if layer.name not in sensitive)
        targets = replace(targets, layers=kept, left_float=targets.left_float | dict.fromkeys(sensitive, "sensitive"))
    for plan in plans:
        if plan.quantizer and not targets.layers:
            _refuse_float(plan, targets.left_float)
    tables, tables_left = quantize_tables(proto, skip_layers) if any(plan.embeddings for plan in plans) else ({}, {})
    calibrated: Mapping[tuple[str, str], QuantMap] = {}
    if samples is not None and any(plan.quantizer == PTQ for plan in plans):
        calibrated = ptq(proto, targets, samples, _settings(options), progress=progress)
        if options.quantize_attention == "auto":
            calibrated = settle_products(proto, calibrated, samples, centred_axis)
    made: list[Made] = []
    same: dict[str, str] = {}
    for plan in plans:
        for name, quant_map in _maps(plan, calibrated, targets, options, width, _without(trained, sensitive)):
            if plan.embeddings:
                left_float = {**quant_map.left_float, **tables_left}
                quant_map = replace(quant_map, tables=tables, left_float=left_float)
            if is_quantized(plan) and not (quant_map.layers if plan.quantizer else quant_map.tables):
                _refuse_float(plan, quant_map.left_float)
            twin = next((one.name for one in made if equal(one.quant_map, quant_map)), None)
            if twin is not None:
                same[name] = twin
            else:
                made.append(Made(name, plan, quant_map))
    return made, same


def is_quantized(plan: Plan) -> bool:
    """Whether a plan makes anything integer."""
    return plan.quantizer is not None or plan.embeddings


def check_makeable(proto: Any, plans: Sequence[Plan], options: CompressOptions) -> None:
    """Refuse, before any training, plans that would leave all of the user's own model float."""
    patterns = () if options.skip_layers == ("auto",) else options.skip_layers
    targets = find_targets(proto, skip_layers=patterns)
    for plan in plans:
        if plan.quantizer and not targets.layers:
            _refuse_float(plan, targets.left_float)
        if plan.embeddings and not plan.quantizer and not quantize_tables(proto, patterns)[0]:
            _refuse_float(plan, quantize_tables(proto, patterns)[1])


def _maps(
    plan: Plan,
    calibrated: Mapping[tuple[str, str], QuantMap],
    targets: Any,
    options: CompressOptions,
    width: str | None,
    trained: QuantMap | None,
) -> list[tuple[str, QuantMap]]:
    if plan.quantizer == PTQ:
        return [(plan.candidate(*key, width=width), quant_map) for key, quant_map in calibrated.items()]
    name = plan.candidate(width=width)
    if plan.quantizer == QAT:
        if trained is None:
            raise ValueError("A plan with qat needs a model that was trained so.")
        return [(name, trained)]
    if plan.quantizer == DYNAMIC:
        return [(name, dynamic(targets, options.weight_quantize_type, options.cpu_classes))]
    names = [one.name for one in (*targets.layers, *targets.products)]
    return [(name, QuantMap(left_float={**targets.left_float, **dict.fromkeys(names, "not_asked")}))]


def _without(trained: QuantMap | None, sensitive: Sequence[str]) -> QuantMap | None:
    """A trained map with some layers float after all: their weights are those that were trained."""
    if trained is None or not sensitive:
        return trained
    kept = {name: layer for name, layer in trained.layers.items() if name not in sensitive}
    spared = {name: "sensitive" for name in trained.layers if name in sensitive}
    return replace(trained, layers=kept, left_float={**trained.left_float, **spared})


def _refuse_float(plan: Plan, left_float: Mapping[str, str]) -> None:
    """Refuse a candidate that would be the float model under another name."""
    reasons = Counter(REASONS[reason] for reason in left_float.values())
    why = "; ".join(f"{count} {reason}" for reason, count in reasons.items()) or "the graph has nothing to quantize"
    raise UserError(f"The strategy '{plan.name}' would leave everything float: {why}.")


def _settings(options: CompressOptions) -> PtqSettings:
    return PtqSettings(
        algo_list=options.algo_list,
        weight_quantize_type=options.weight_quantize_type,
        adaround=options.round_type == "adaround",
        bias_correction=options.bias_correction,
        smooth=options.smooth,
        moving_rate=options.moving_rate,
        cpu_classes=options.cpu_classes,
        seed=options.seed,
    )


def is_moving(options: CompressOptions) -> bool:
    """Whether ranges are averaged over batches."""
    return options.activation_quantize_type == MOVING


def equal(one: QuantMap, other: QuantMap) -> bool:
    """Whether two maps give the same graphs."""
    if one.layers.keys() != other.layers.keys() or one.tables.keys() != other.tables.keys():
        return False
    if dict(one.products) != dict(other.products):
        return False
    return all(_equal_layers(one.layers[name], other.layers[name]) for name in one.layers)


def _equal_layers(one: Any, other: Any) -> bool:
    if one.range != other.range:
        return False
    pairs = ((getattr(one, part), getattr(other, part)) for part in ("integers", "scales", "smooth", "bias"))
    return all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs)
