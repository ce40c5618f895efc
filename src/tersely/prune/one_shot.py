"""Pruning without training: heads and neurons go where they cost most and matter least; what is left is repaired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..errors import UserError
from ..models.carve import Places, Shape, carve, locate
from ..models.carve.places import HEADS, NEURONS
from ..models.families import find
from ..models.folder import ModelFolder
from ..progress import SILENT, Progress
from ..training.losses import kind_of
from .allocate import Levels, allocate
from .answers import AnswerDistance, weighed
from .fisher import fisher
from .importance import reorder
from .latency import LatencyTable
from .passage import Passage, real_positions
from .repair import Repaired, repair
from .sample import Sample, draw
from .scores import Scores, agreed, level_units
from .surgeon import surgeon

SCORING = 16_000
"""Positions that score heads and neurons; the repair sees all."""


@dataclass(frozen=True)
class OneShot:
    """A pruned and repaired model in memory: its shape, who scored its units, how far its outputs moved.

    `change`: mean |Δoutput| on rows that fitted nothing. `repaired`: what became of each output projection.
    """

    model: Any = field(repr=False)
    shape: Shape
    method: str
    change: float
    repaired: tuple[Repaired, ...] = field(repr=False)


class OneShotPruner:
    """One model and its rows, to be pruned to several budgets of time. Scores are found once, by both methods.

    `first_only`: the model's head reads the first position alone. Labels are not needed. Takes a forward and a backward
    pass over the sample, one pass for each sublayer and level on a part of it, and for each shape six passes.
    """

    def __init__(
        self,
        folder: ModelFolder,
        examples: Sequence[Any],
        *,
        first_only: bool = False,
        seed: int = 42,
        progress: Progress = SILENT,
    ) -> None:
        self.model = folder.load().eval()
        self.family = find(self.model)
        self.places: Places = locate(self.model, self.family)
        self.answers = AnswerDistance(kind_of(folder.task))
        drawn: Sample = draw(folder, self.model, examples, seed)
        self.sample = weighed(self.model, self.family, drawn, self.answers, seed=seed, progress=progress)
        self.first_only, self.seed, self.progress = first_only, seed, progress

    @cached_property
    def scores(self) -> tuple[Scores, ...]:
        """What each method says of heads and neurons."""
        sample, progress = self.sample.part(SCORING), self.progress
        return (
            fisher(self.model, self.family, sample.fitting, self.answers, seed=self.seed, progress=progress),
            surgeon(self.model, self.family, sample, self.answers, first_only=self.first_only, progress=progress),
        )

    def prune(self, table: LatencyTable, seconds: float, method: str | None = None) -> OneShot:
        """The model that takes so many seconds by the table: of two that are tried the one whose answers move least.

        By slopes and measured harms together, best where little goes, and by the surgeon alone, best where much does.
        `method`: the one of them that is known to be better for nearly as many seconds.
        """
        by_slopes, by_surgery = self.scores
        tried = [
            self._cut(scores, shape_within(self.places, scores, table, seconds))
            for scores in (agreed(by_slopes, by_surgery), by_surgery)
            if method in (None, scores.method)
        ]
        return min(tried, key=lambda found: self._distance(found.model))

    def _cut(self, scores: Scores, shape: Shape) -> OneShot:
        smaller = carve(reorder(self.model, scores.importance, self.family), self.family, shape).eval()
        first, progress = self.first_only, self.progress
        repaired = repair(self.model, smaller, self.family, self.sample, first_only=first, progress=progress)
        return OneShot(smaller, shape, scores.method, self._change(smaller), tuple(repaired))

    @cached_property
    def _outputs(self) -> list[tuple[torch.Tensor, ...]]:
        passage = Passage(self.model, self.family)
        return [passage.run(inputs).outputs for inputs in self.sample.held_out]

    def _distance(self, other: Any) -> float:
        """How far answers have moved on rows that fitted nothing."""
        passage = Passage(other, self.family)
        found = [
            self.answers.change(passage.run(inputs).outputs, before, inputs)
            for inputs, before in zip(self.sample.held_out, self._outputs, strict=True)
        ]
        return sum(moved for moved, _ in found) / max(sum(count for _, count in found), 1.0)

    def _change(self, other: Any) -> float:
        """Mean |Δoutput| on rows that fitted nothing, padding left out."""
        passage, total, count = Passage(other, self.family), 0.0, 0
        for inputs, before in zip(self.sample.held_out, self._outputs, strict=True):
            mask = real_positions(inputs)
            for old, new in zip(before, passage.run(inputs).outputs, strict=True):
                change = (new - old).abs()
                change = change[mask] if change.shape[:2] == mask.shape else change
                total += float(change.double().sum())
                count += change.numel()
        return total / max(count, 1)


def shape_within(places: Places, scores: Scores, table: LatencyTable, seconds: float) -> Shape:
    """The shape of least harm whose time by the table is within so many seconds.

    Where layers share weights (ALBERT) there is one number of heads and one of neurons; where they share a table of
    positions by head (MPNet) one number of heads.
    """
    family, full = places.family, places.full
    layers, blocks = len(full.layers), len(places.blocks)
    groups: list[tuple[str, list[int]]] = []
    for unit in (HEADS, NEURONS):
        together = family.heads_are_shared if unit == HEADS else family.layers_share_weights
        groups += [(unit, list(range(layers)))] if together else [(unit, [layer]) for layer in range(layers)]
    levels = [_levels(unit, members, places, scores, table) for unit, members in groups]
    rest = table.full - sum(float(sublayer.seconds[-1]) for sublayer in levels)
    if rest + sum(float(sublayer.seconds.min()) for sublayer in levels) > seconds:
        fastest = table.fp32 / max(rest, 1e-12)
        what = f"A speed-up of {table.fp32 / seconds:.4g} cannot be reached: without any layer it is {fastest:.3g}."
        raise UserError(what, hint="Ask for less.", option="target_speedup")
    kept: dict[str, list[int]] = {HEADS: [0] * layers, NEURONS: [0] * layers}
    for (unit, members), units in zip(groups, allocate(levels, seconds - rest), strict=True):
        for layer in members:
            kept[unit][layer] = min(units, places.count(unit, layer % blocks))
    return Shape(tuple(kept[HEADS]), tuple(kept[NEURONS]), full.layers)


def _levels(unit: str, members: Sequence[int], places: Places, scores: Scores, table: LatencyTable) -> Levels:
    """What layers that go together may keep: their times and harms add up; weights that serve all are counted once."""
    layers, blocks = len(places.full.layers), len(places.blocks)
    units = level_units(unit, members[0] % blocks, places)
    costs = [table.cost(unit, layer, layers) for layer in members]
    times = np.array([sum(cost.at(count) for cost in costs) for count in units])
    harmed = {layer % blocks for layer in members}
    harm = np.sum([scores.harms.get((unit, block), np.zeros(len(units))) for block in sorted(harmed)], axis=0)
    return Levels(units, times, harm)
