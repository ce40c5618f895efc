"""From parents and plans to candidates: which there are, which of them are the same, what else may be tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import UserError
from ..options.compress import CompressOptions
from ..progress import SILENT, Progress
from ..quant_map import REASONS, QuantMap
from ..quantize.attention import kept_products, kinds, settle_products
from ..quantize.ptq import PtqSettings, dynamic, ptq
from ..quantize.samples import Samples
from ..quantize.sensitivity import sensitivity, too_harmful
from ..quantize.targets import Targets, find_targets
from ..quantize.weights import quantize_tables
from ..strategy import DYNAMIC, PTQ, QAT, Plan
from .candidate import Candidate
from .parents import Parent, RunContext, options_for


def check_makeable(proto: Any, plans: Sequence[Plan], options: CompressOptions) -> None:
    """Refuse, before any training, plans that would leave all of the user's own model float."""
    patterns = () if options.skip_layers == ("auto",) else options.skip_layers
    targets = find_targets(proto, skip_layers=patterns)
    for plan in plans:
        if plan.quantizer and not targets.layers:
            _refuse_float(plan, targets.left_float)
        if plan.embeddings and not plan.quantizer:
            tables, left_float = quantize_tables(proto, patterns)
            if not tables:
                _refuse_float(plan, left_float)


@dataclass
class CandidateMaker:
    """Makes the candidates of parents. `harm`: mean |Δlogit| with each layer alone in INT8, by the parent's label."""

    run: RunContext
    harm: dict[str, dict[str, float]] = field(default_factory=dict)

    def make_all(self, parents: Sequence[Parent]) -> tuple[list[Candidate], dict[str, str]]:
        """Every candidate of every parent, without harmful layers if `skip_layers` is auto; equal ones as in `make`."""
        found: list[Candidate] = []
        same: dict[str, str] = {}
        automatic = self.run.options.skip_layers == ("auto",)
        for parent in parents:
            made, twins = self._make(parent, parent.rows.samples)
            if self.run.options.sensitivity or automatic:
                self._find_harm(parent, made)
            if automatic and (harmful := too_harmful(self.harm.get(parent.label, {}))):
                made, twins = self._make(parent, parent.rows.samples, harmful)
            found += made
            same |= twins
        return found, same

    def make_more(self, parents: Sequence[Parent], made: Sequence[Candidate]) -> Iterator[list[Candidate]]:
        """What to try while the drop is above `max_drop`: more rows, then the most harmful layers left float."""
        above, say = "The drop is above --max_drop:", self.run.progress.say
        calibrated = [parent for parent in parents if any(plan.quantizer == PTQ for plan in parent.plans)]
        with_more = [(parent, parent.rows.more) for parent in calibrated if parent.rows.more is not None]
        if with_more:
            say(f"{above} calibrating on {', '.join(with_more[0][1].sets)} rows.")
            yield [candidate for parent, more in with_more for candidate in self._make(parent, more)[0]]
        for parent in parents:
            if parent.label not in self.harm:
                self._find_harm(parent, [candidate for candidate in made if candidate.parent is parent])
        left = 1
        while any(left < len(harm) for harm in self.harm.values()):  # with all float there is nothing left to ship
            spared = []
            for parent in parents:
                harm = self.harm.get(parent.label, {})
                if left < len(harm):
                    model = f"of {parent.label} " if parent.label else ""
                    say(f"{above} leaving {left} of {len(harm)} layers {model}float.")
                    spared += self._make(parent, parent.rows.samples, list(harm)[:left])[0]
            yield [replace(candidate, name=f"{candidate.name}-float{left}") for candidate in spared]
            left *= 2

    def _make(
        self, parent: Parent, samples: Samples | None, sensitive: Sequence[str] = ()
    ) -> tuple[list[Candidate], dict[str, str]]:
        return make(parent, self.run.options, samples, sensitive=sensitive, progress=self.run.progress)

    def _find_harm(self, parent: Parent, made: Sequence[Candidate]) -> None:
        """Run the parent once for each layer; nothing to find where nothing was quantized."""
        quantized = [candidate for candidate in made if candidate.plan.quantizer]
        if not quantized:
            return
        first = next((candidate for candidate in quantized if candidate.plan.quantizer == PTQ), quantized[0])
        pad_id, axis, progress = parent.encoder.pad_id, parent.task.centred_axis, self.run.progress
        found = sensitivity(parent.proto, first.quant_map, parent.rows.judging, pad_id, axis, progress=progress)
        self.harm[parent.label] = found


class EverythingFloat(UserError):
    """A plan would give the float model under another name."""


def make(
    parent: Parent,
    options: CompressOptions,
    samples: Samples | None,
    *,
    sensitive: Sequence[str] = (),
    judges_products: bool = True,
    progress: Progress = SILENT,
) -> tuple[list[Candidate], dict[str, str]]:
    """Every candidate of a parent's plans, equal ones once; and for the name of each left out the name of its equal.

    `sensitive`: layers that are left float as INT8 harms them most. `judges_products`: whether `quantize_attention`'s
    auto looks for harm, or takes what engines gain from. All plans share one calibration. A plan that only
    prunes gives the graph as it is.
    """
    proto, plans = parent.proto, parent.plans
    attention = kinds(options.quantize_attention, options.engines)
    targets = find_targets(proto, skip_layers=parent.skip_layers, attention=attention)
    if sensitive:
        kept = tuple(layer for layer in targets.layers if layer.name not in sensitive)
        targets = replace(targets, layers=kept, left_float=targets.left_float | dict.fromkeys(sensitive, "sensitive"))
    for plan in plans:
        if plan.quantizer and not targets.layers:
            _refuse_float(plan, targets.left_float)
    embeddings = any(plan.embeddings for plan in plans)
    tables, tables_left = quantize_tables(proto, parent.skip_layers) if embeddings else ({}, {})
    calibrated: Mapping[tuple[str, str], QuantMap] = {}
    if samples is not None and any(plan.quantizer == PTQ for plan in plans):
        adaround = options.round_type == "adaround"
        settings = PtqSettings(**options_for(PtqSettings, options), adaround=adaround)
        calibrated = ptq(proto, targets, samples, settings, progress=progress)
        if options.quantize_attention == "auto":
            axis = parent.task.centred_axis
            calibrated = (
                settle_products(proto, calibrated, samples, axis) if judges_products else kept_products(calibrated)
            )
    made: list[Candidate] = []
    same: dict[str, str] = {}
    for plan in plans:
        for name, quant_map in _maps(plan, parent, calibrated, targets, options, sensitive):
            if plan.embeddings:
                left_float = {**quant_map.left_float, **tables_left}
                quant_map = replace(quant_map, tables=tables, left_float=left_float)
            if (plan.quantizer or plan.embeddings) and not (quant_map.layers if plan.quantizer else quant_map.tables):
                _refuse_float(plan, quant_map.left_float)
            twin = next((candidate.name for candidate in made if equal(candidate.quant_map, quant_map)), None)
            if twin is not None:
                same[name] = twin
            else:
                made.append(Candidate(name, plan, parent, quant_map))
    return made, same


def _maps(
    plan: Plan,
    parent: Parent,
    calibrated: Mapping[tuple[str, str], QuantMap],
    targets: Targets,
    options: CompressOptions,
    sensitive: Sequence[str],
) -> list[tuple[str, QuantMap]]:
    """Names and quantization maps of the candidates of a plan."""
    if plan.quantizer == PTQ:
        return [(plan.candidate(*key, width=parent.width), quant_map) for key, quant_map in calibrated.items()]
    name = plan.candidate(width=parent.width)
    if plan.quantizer == QAT:
        if parent.trained is None:
            raise ValueError("A plan with qat needs a model that was trained so.")
        return [(name, _without(parent.trained.quant_map, sensitive))]
    if plan.quantizer == DYNAMIC:
        return [(name, dynamic(targets, options.weight_quantize_type, options.cpu_classes))]
    names = [layer.name for layer in targets.layers] + [product.name for product in targets.products]
    return [(name, QuantMap(left_float={**targets.left_float, **dict.fromkeys(names, "not_asked")}))]


def _without(trained: QuantMap, sensitive: Sequence[str]) -> QuantMap:
    """A trained map with some layers float after all: their weights are those that were trained."""
    kept = {name: layer for name, layer in trained.layers.items() if name not in sensitive}
    spared = {name: "sensitive" for name in trained.layers if name in sensitive}
    return replace(trained, layers=kept, left_float={**trained.left_float, **spared})


def _refuse_float(plan: Plan, left_float: Mapping[str, str]) -> None:
    """Refuse a candidate that would be the float model under another name."""
    reasons = Counter(REASONS[reason] for reason in left_float.values())
    why = "; ".join(f"{count} {reason}" for reason, count in reasons.items()) or "the graph has nothing to quantize"
    raise EverythingFloat(f"The strategy '{plan.name}' would leave everything float: {why}.")


def equal(quant_map: QuantMap, other: QuantMap) -> bool:
    """Whether two maps give the same graphs."""
    if quant_map.layers.keys() != other.layers.keys() or quant_map.tables.keys() != other.tables.keys():
        return False
    if dict(quant_map.products) != dict(other.products):
        return False
    return all(_equal_layers(quant_map.layers[name], other.layers[name]) for name in quant_map.layers)


def _equal_layers(layer: Any, other: Any) -> bool:
    if layer.range != other.range:
        return False
    pairs = ((getattr(layer, part), getattr(other, part)) for part in ("integers", "scales", "smooth", "bias"))
    return all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs)
