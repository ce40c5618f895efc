"""How long models of other shapes take, timed in the engine and precision that will run them, beside FP32."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from .. import engines
from ..deploy.export import GRAPH
from ..engines.cpu import cpu
from ..engines.engine import Engine
from ..errors import UserError
from ..graphs.export import export_onnx
from ..graphs.first_position import keep_first_position
from ..graphs.plain import unfold
from ..measure.benchmark import Contestant, Setting, Timing, alternate, full_batch
from ..models.carve import Places, Shape, carve, locate
from ..models.carve.places import HEADS, NEURONS
from ..models.carve.shape import neuron_step
from ..models.families import find
from ..options.compress import CompressOptions
from ..progress import SILENT
from ..prune.latency import Cost, LatencyTable, empty_shape, read_table
from ..quantize.samples import Samples
from ..runtime.choose import cache_folder, engine_versions, write_cached
from ..strategy import DYNAMIC, EMBEDDINGS, PRUNE, PTQ, Plan
from .candidate import write_candidate
from .make_candidates import EverythingFloat, make
from .parents import Parent, RunContext

SHARES: tuple[float, ...] = (0.5,)
"""Shares of heads and neurons at which a layer is timed, beside none, the fewest and all: from the fewest on it is
nearly a line."""
TIMED_LAYERS = 3
"""Layers of the models that are timed in the place of deep ones: two alike and the last."""
SECONDS, ROUNDS = 0.5, 9
MOST_SCALED = 1.5
"""By how much costs of layers are corrected at most, so that they add up to what a whole model takes."""
TRIES = 2
"""Times that a table is measured before the machine is called too busy."""
SMOOTHED = 0.5
"""How inputs of graphs that are only timed are smoothed: how much makes no difference to time."""
CALIBRATION = 8
"""Rows that set the ranges of graphs that are only timed."""


def timed_as(quantizer: str | None) -> str | None:
    """The quantizer whose graphs are as fast: `qat` ends in the graph of `ptq`."""
    return quantizer if quantizer in (None, DYNAMIC) else PTQ


class ShapeTimer:
    """Times one model's graph, smaller models of its build, and FP32, all in one way: `setting`.

    `quantizer`: the step that turns matmuls to INT8, or None. `base`: the model that shapes are cut out of.
    """

    def __init__(self, origin: Parent, base: Parent, quantizer: str | None, setting: Setting, run: RunContext) -> None:
        self.origin, self.base, self.run, self.setting = origin, base, run, setting
        self.quantizer = timed_as(quantizer)
        self.scratch = run.scratch / "timed" / base.digest[:12] / (self.quantizer or "fp32")
        self._table: LatencyTable | None = None
        self._count = 0

    @property
    def table(self) -> LatencyTable:
        """The latency table: from the `latency_table` file, from the user's cache, or measured now."""
        if self._table is None:
            named = self.run.options.latency_table
            if named is not None:
                self._table = self._fitting(read_table(named, self.about["precision"]), str(named))
            else:
                with suppress(OSError, ValueError, UserError):
                    self._table = LatencyTable.from_json(json.loads(self._place.read_text(encoding="utf-8")))
        if self._table is None:
            self._table = self._measure()
            self._keep()
        return self._table

    @property
    def _place(self) -> Path:
        return cache_folder() / "latency" / f"{_digest(self.about)}.json"

    def _keep(self) -> None:
        if self._table is not None and self.run.options.latency_table is None:
            with suppress(OSError):  # a cache that cannot be written costs time alone
                write_cached(self._place, json.dumps(self._table.to_json(), indent=1) + "\n")

    @cached_property
    def about(self) -> dict[str, Any]:
        """All that a table depends on."""
        here, places = cpu(), self._places
        return {
            "cpu": here.name,
            "cpu_class": here.cpu_class,
            "versions": engine_versions(),
            "engines": list(self._engines),
            "precision": self.quantizer or "fp32",
            "tables": "int8" if self._tables else "fp32",
            "products": self._options.quantize_attention,
            "smooth": str(self._options.smooth),
            "model_type": str(self.base.folder.config["model_type"]),
            "hidden": int(places.config.hidden_size),
            "heads": list(places.full.heads),
            "neurons": list(places.full.ffn),
            "outputs": list(self.base.task.outputs),
            "first_position": self.base.first_only,
            "batch": self.setting.batch,
            "length": self.setting.length,
            "threads": self.setting.threads,
        }

    def speedup(self, parent: Parent, shape: Shape) -> float:
        """How many times as fast as FP32 a model of this shape is: as the table says, or in one alternating run."""
        known = self.table.seen(shape)
        if known is not None:
            return known
        # The full model between two runs leaves caches as the run that reports does, where there are several models.
        # With all rows and calibrators: they tell what is smoothed and which products are INT8.
        model = self._runner(parent.proto, self._as_shipped, self.base.rows.samples, judges=True)
        runners = [*self._fp32(), ("full", "", self._full), ("model", "", model)]
        *fp32, _, timed = self._alternate(runners, "time the pruned model")
        fastest = min(fp32, key=lambda timing: timing.seconds)
        found = timed.ratio / fastest.ratio  # as the artifact is measured at the end
        self._table = self.table.with_graph(shape, found)
        self._keep()
        return found

    def _fitting(self, table: LatencyTable, where: str) -> LatencyTable:
        """Refuse a table of another model or machine."""
        for name, here in self.about.items():
            if (there := table.about.get(name)) != here:
                what = f"The latency table was measured with {name} {there}; here it is {here}."
                raise UserError(
                    what, where=where, hint="Leave it out, and it is measured anew.", option="latency_table"
                )
        return table

    def _measure(self) -> LatencyTable:
        probes = self._probes()
        timed = list(dict.fromkeys([*(shape for group in probes.values() for shape in group.values()), self._anchor]))
        runners = [*self._fp32(), ("full", "", self._full)]
        with self.run.progress.track("export layers to time", len(timed)) as advance:
            for number, shape in enumerate(timed):
                runners.append((f"shape {number}", "", self._runner(self._export(shape), self._options, self._samples)))
                advance(1)
        full, progress = self._places.full, self.run.progress
        for _ in range(TRIES):
            table = self._timed(runners, timed, probes)
            if table.seconds(empty_shape(full), full) > 0:
                return table
            progress.say("Layers took more time than the whole model: the machine is not quiet.")
        progress.say("Their times are taken in proportion; the pruned model is timed itself before it is taken.")
        return table.within_full(full)

    def _timed(
        self,
        runners: Sequence[tuple[str, str, Engine]],
        timed: Sequence[Shape],
        probes: Mapping[tuple[str, bool], Mapping[int, Shape]],
    ) -> LatencyTable:
        """Time all in turn; what a layer costs are differences."""
        timings = self._alternate(runners, "time layers")
        count = len(runners) - len(timed) - 1
        seconds = [timing.least for timing in timings]
        by_shape = dict(zip(timed, seconds[count + 1 :], strict=True))
        costs = {}
        for (unit, is_last), group in probes.items():
            times = np.array([by_shape[shape] for shape in group.values()])
            costs[unit, is_last] = _cost(tuple(group), times, 1 if is_last else self._alike(unit))
        table = LatencyTable(
            fp32=min(seconds[:count]),
            full=seconds[count],
            heads=costs[HEADS, False],
            neurons=costs[NEURONS, False],
            last_heads=costs.get((HEADS, True), costs[HEADS, False]),
            last_neurons=costs.get((NEURONS, True), costs[NEURONS, False]),
            about=self.about,
        )
        # Layers of a deep model take a little more than those of a short one: its caches hold less.
        full, anchor = self._places.full, self._anchor
        saved = table.full - table.seconds(anchor, full)
        share = (table.full - by_shape[anchor]) / saved if saved > 0 else 1.0
        return table.scaled(min(max(share, 1 / MOST_SCALED), MOST_SCALED))

    @cached_property
    def _anchor(self) -> Shape:
        """A smaller model of the whole depth, which layers have to add up to."""
        full = self._places.full
        heads = tuple(max(1, round(count / 4)) for count in full.heads)
        neurons = tuple(min(n, max(1, round(n / 4 / neuron_step(n))) * neuron_step(n)) for n in full.ffn)
        return Shape(heads, neurons, full.layers)

    def _probes(self) -> dict[tuple[str, bool], dict[int, Shape]]:
        """Shapes to time by the kind of sublayer, whether it is the last layer's, and the units that it keeps.

        Without its last attention all that comes before would be computed for one position too, which is no cost of
        that attention: where one position counts it is not timed at none.
        """
        base, first_only = self._timed_shape, self.base.first_only
        found: dict[tuple[str, bool], dict[int, Shape]] = {}
        for unit, sizes in ((HEADS, base.heads), (NEURONS, base.ffn)):
            most, alike, layers = max(sizes), self._alike(unit), len(base.layers)
            step = 1 if unit == HEADS else neuron_step(most)
            least = {min(step, most), most}
            between = {min(most, step * round(share * most / step)) for share in SHARES}
            timed_at_none = least | {0}
            not_at_none = least if first_only and unit == HEADS and len(least) > 1 else timed_at_none
            points = between | (not_at_none if alike == layers else timed_at_none)
            found[unit, False] = {count: _with(base, unit, range(alike), count) for count in sorted(points)}
            if alike < layers:
                found[unit, True] = {count: _with(base, unit, [layers - 1], count) for count in sorted(not_at_none)}
        return found

    @cached_property
    def _timed_shape(self) -> Shape:
        """The model's own shape, with fewer layers where those are enough to know the costs."""
        full, family = self._places.full, self._places.family
        if family.heads_are_shared or len(full.layers) <= TIMED_LAYERS:
            return full
        kept = (*range(TIMED_LAYERS - 1), len(full.layers) - 1)
        return Shape(tuple(full.heads[i] for i in kept), tuple(full.ffn[i] for i in kept), kept)

    def _alike(self, unit: str) -> int:
        """How many of the timed layers are changed together: all, or all but one that is computed for one position."""
        family, layers = self._places.family, len(self._timed_shape.layers)
        together = family.heads_are_shared if unit == HEADS else family.layers_share_weights
        return layers if together or not self.base.first_only or layers == 1 else layers - 1

    @cached_property
    def _model(self) -> Any:
        return self.base.folder.load().eval()

    @cached_property
    def _places(self) -> Places:
        return locate(self._model, find(self._model))

    @property
    def _engines(self) -> Sequence[str]:
        return self.run.options.engines or engines.installed(engines.GRAPH_ENGINES)

    def _export(self, shape: Shape) -> Any:
        """The graph of a smaller model; timers of other precisions find it where the first left it."""
        place = self.scratch.parent / f"{_digest(asdict(shape))}.onnx"
        if not place.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            smaller = carve(self._model, self._places.family, shape).eval()
            export_onnx(smaller, place, input_dtype=self.run.options.input_dtype)
        proto = unfold(onnx.load(place))
        keep_first_position(proto)
        return proto

    def _runner(self, proto: Any, options: CompressOptions, samples: Samples | None, *, judges: bool = False) -> Engine:
        """A graph as the quantizer leaves it, on the engine that the runtime would take.

        `judges`: with all its rows, which tell whether products of attention do harm.
        """
        plan = Plan(tuple(step for step in (self.quantizer, *self._tables) if step))
        parent = replace(self.base, proto=proto, plans=(plan,), skip_layers=())
        try:
            progress = self.run.progress if judges else SILENT
            made = make(parent, options, samples, judges_products=judges, progress=progress)[0][0]
        except EverythingFloat:  # too little of it is left
            made = make(replace(parent, plans=(Plan(()),)), options, samples)[0][0]
        self._count += 1
        written = write_candidate(made, self.scratch / str(self._count), self._engines)
        return written.load(written.pairs()[0], self.setting.threads)

    @cached_property
    def _tables(self) -> tuple[str, ...]:
        """The step that makes embedding tables INT8, where all that are pruned in this precision have it."""
        pruned = [plan for plan in self.run.plans if PRUNE in plan.steps]
        alike = [plan for plan in pruned if timed_as(plan.quantizer) == self.quantizer]
        return (EMBEDDINGS,) if alike and all(EMBEDDINGS in plan.steps for plan in alike) else ()

    @cached_property
    def _full(self) -> Engine:
        return self._runner(self.base.proto, self._options, self._samples)

    @cached_property
    def _as_shipped(self) -> CompressOptions:
        """The options that matter to speed."""
        return replace(self.run.options, round_type="round", bias_correction=False, skip_layers=())

    @cached_property
    def _options(self) -> CompressOptions:
        """The same for graphs that are only timed: as pruned models come out, which a few rows do not tell.

        Products of attention are INT8 where the full model has them so. All inputs are smoothed: of pruned and repaired
        models nearly all are.
        """
        options = replace(self._as_shipped, algo_list=self.run.options.algo_list[:1])
        if self.quantizer != PTQ:
            return replace(options, smooth="off", quantize_attention="off")
        if options.smooth == "auto":
            options = replace(options, smooth=SMOOTHED)
        if options.quantize_attention == "auto":
            parent = replace(self.base, plans=(Plan((PTQ,)),), skip_layers=())
            made = make(parent, self._as_shipped, self.base.rows.samples, progress=self.run.progress)[0][0]
            options = replace(options, quantize_attention="auto" if made.quant_map.products else "off")
        return options

    @cached_property
    def _samples(self) -> Samples | None:
        samples = self.base.rows.samples
        if samples is None:
            return None
        features = samples.features[:CALIBRATION]
        return Samples(features, samples.judging[:CALIBRATION], {"timed": len(features)}, samples.pad_id)

    def _fp32(self) -> list[tuple[str, str, Engine]]:
        """The user's model as exported, on every engine that runs it here."""
        graph = self.origin.fp32.path(GRAPH)
        names = engines.installed(engines.GRAPH_ENGINES)
        return [("FP32", name, engines.load(name, graph, threads=self.setting.threads)) for name in names]

    def _alternate(self, runners: Sequence[tuple[str, str, Engine]], title: str) -> list[Timing]:
        setting, model = self.setting, self.origin
        like = model.task.features(self.run.rows.scoring[:1], model.encoder)[0]
        tokens = min(model.encoder.vocab_size, self.base.encoder.vocab_size)
        batch = full_batch(setting.batch, setting.length, tokens, like=like)
        contestants = [Contestant(name, engine, partial(runner.run, batch)) for name, engine, runner in runners]
        first = contestants[0].label
        return alternate(contestants, first, seconds=SECONDS, rounds=ROUNDS, title=title, progress=self.run.progress)


def _cost(units: Sequence[int], times: NDArray[np.float64], layers: int) -> Cost:
    """What one of `layers` layers costs, from times of graphs; 0 without units, on a line if that was not timed."""
    if units[0] > 0:
        zero = times[0] - units[0] * max(0.0, times[-1] - times[0]) / max(1, units[-1] - units[0])
        units, times = (0, *units), np.concatenate([[zero], times])
    rising = np.maximum.accumulate(times - times[0]) / layers
    return Cost(tuple(units), tuple(float(seconds) for seconds in rising))


def _with(shape: Shape, unit: str, layers: Sequence[int], count: int) -> Shape:
    """A shape with so many units, or as many as there are, in some layers."""
    sizes = list(shape.heads if unit == HEADS else shape.ffn)
    for layer in layers:
        sizes[layer] = min(count, sizes[layer])
    return replace(shape, **{"heads" if unit == HEADS else "ffn": tuple(sizes)})


def _digest(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
