"""What the layers of a model cost in time: measured at a few sizes, interpolated in between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, existing, fill
from ..models.carve import Shape
from ..models.carve.places import HEADS, NEURONS

VERSION = 1
LEAST_REST = 0.02
"""What a model takes without its layers, as a share of all, where disturbed timings leave nothing for it."""


@dataclass(frozen=True)
class Cost:
    """Seconds that one sublayer takes, by the units that it keeps: both rise, from nothing for none.

    >>> Cost((0, 2, 4), (0.0, 1.0, 3.0)).at(3)
    2.0
    """

    units: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.units) == len(self.seconds) > 1 or list(self.units) != sorted(set(self.units)):
            raise UserError(f"A cost holds as many seconds as numbers of units, which rise. Got {self}.")

    def at(self, count: int) -> float:
        """Seconds with so many units."""
        return float(np.interp(count, self.units, self.seconds))


@dataclass(frozen=True)
class TimedGraph:
    """A pruned model whose graph was timed: its sizes by layer, and how many times as fast as FP32 it is."""

    heads: tuple[int, ...]
    neurons: tuple[int, ...]
    speedup: float


@dataclass(frozen=True)
class LatencyTable:
    """Seconds of a batch, and of each layer's part of it.

    `fp32`: the model as exported on its fastest FP32 engine. `full`: the full model in the precision
    that is wanted. `heads`, `neurons`: attention and FFN of any layer but the last; `last_heads`, `last_neurons` of
    that one, which may be computed for one position. `about`: what it was measured with. `graphs`: pruned models that
    were timed since; with them the same table gives the same shapes, though a budget is corrected by what a graph
    really takes.
    """

    fp32: float
    full: float
    heads: Cost
    neurons: Cost
    last_heads: Cost
    last_neurons: Cost
    about: Mapping[str, Any]
    graphs: tuple[TimedGraph, ...] = ()

    def seen(self, shape: Shape) -> float | None:
        """How many times as fast as FP32 a graph of this shape was, if one was timed."""
        sizes = (shape.heads, shape.ffn)
        return next((graph.speedup for graph in self.graphs if (graph.heads, graph.neurons) == sizes), None)

    def with_graph(self, shape: Shape, speedup: float) -> LatencyTable:
        """The same with one more graph that was timed."""
        return replace(self, graphs=(*self.graphs, TimedGraph(shape.heads, shape.ffn, speedup)))

    def scaled(self, share: float) -> LatencyTable:
        """The same with every layer's cost so many times as large; what the full model takes stays."""
        names = ("heads", "neurons", "last_heads", "last_neurons")
        costs = {name: getattr(self, name) for name in names}
        scaled: Any = {name: Cost(cost.units, tuple(share * x for x in cost.seconds)) for name, cost in costs.items()}
        return replace(self, **scaled)

    def within_full(self, full: Shape) -> LatencyTable:
        """The same with costs of layers that leave the rest of the model a little time."""
        layers = self.full - self.seconds(empty_shape(full), full)
        return self.scaled(min(1.0, (1 - LEAST_REST) * self.full / layers)) if layers > 0 else self

    def cost(self, unit: str, layer: int, layers: int) -> Cost:
        """Of the attention (`heads`) or FFN (`neurons`) of a layer, one of so many."""
        if layer + 1 == layers:
            return self.last_heads if unit == HEADS else self.last_neurons
        return self.heads if unit == HEADS else self.neurons

    def seconds(self, shape: Shape, full: Shape) -> float:
        """What a smaller model of the same depth would take."""
        saved, layers = 0.0, len(full.layers)
        for unit, kept, most in ((HEADS, shape.heads, full.heads), (NEURONS, shape.ffn, full.ffn)):
            for layer in range(layers):
                cost = self.cost(unit, layer, layers)
                saved += cost.at(most[layer]) - cost.at(kept[layer])
        return self.full - saved

    def speedup(self, shape: Shape, full: Shape) -> float:
        """How many times as fast as FP32 it would be."""
        return self.fp32 / self.seconds(shape, full)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON with a version."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, content: Any, *, where: str | None = None) -> LatencyTable:
        """Read what `to_json` gave; anything else is refused."""
        if not isinstance(content, Mapping) or content.get("version") != VERSION:
            version = content.get("version") if isinstance(content, Mapping) else None
            what = f"The latency table has format version {version}; this tersely reads version {VERSION}."
            raise UserError(what, where=where, hint="Leave --latency_table out, and it is measured anew.")
        table = {name: value for name, value in content.items() if name != "version"}
        return fill(cls, table, "The latency table", where=where)


def empty_shape(full: Shape) -> Shape:
    """What is left of a model without heads and neurons."""
    none = (0,) * len(full.layers)
    return Shape(none, none, full.layers)


def read_table(path: str | Path, precision: str) -> LatencyTable:
    """Read a table from a file of its own, or that of a precision from the `result.json` of a run that measured it."""
    place = existing(path, "file")
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"The latency table is not JSON: {error}.", where=str(place)) from None
    tables = content.get("latency_tables") if isinstance(content, Mapping) else None
    if isinstance(tables, list) and tables:
        content = next((table for table in tables if _precision(table) == precision), tables[0])
    return LatencyTable.from_json(content, where=str(place))


def _precision(table: Any) -> Any:
    about = table.get("about") if isinstance(table, Mapping) else None
    return about.get("precision") if isinstance(about, Mapping) else None
