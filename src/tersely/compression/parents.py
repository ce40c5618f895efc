"""The models that candidates are made of: the user's own, and the smaller ones that pruning made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..graphs.first_position import keep_first_position
from ..options.compress import CompressOptions
from ..progress import Progress
from ..qat import Trained
from ..quantize.skip import fits
from ..quantize.targets import find_targets
from ..strategy import Plan
from .divide import DividedRows, Encoded
from .pruning import Pruning, Smaller, publish_torch
from .source import Source, open_pruned


@dataclass(frozen=True)
class Parent:
    """A model as a graph, the plans that start from it, and the rows as its own tokenizer spells them.

    `smaller`: the torch model that pruning made; None for the user's own. `trained`: what was learnt by training for
    INT8, where the graph is that of the model so trained.
    """

    source: Source
    plans: tuple[Plan, ...]
    rows: Encoded = field(repr=False)
    smaller: Smaller | None = None
    skip_layers: tuple[str, ...] = ()
    trained: Trained | None = None

    @property
    def width(self) -> str | None:
        """What its candidates bear in the place of `dynabert`."""
        return self.smaller.pruned.name if self.smaller and self.smaller.pruned else None

    @property
    def name(self) -> str:
        """Its folder under torch/; empty for the user's own model."""
        return self.smaller.name if self.smaller else ""

    @property
    def label(self) -> str:
        """A name that no other parent has."""
        return f"{self.name} qat".strip() if self.trained else self.name


def make_parents(
    origin: Source,
    plans: Sequence[Plan],
    pruning: Pruning,
    rows: DividedRows,
    options: CompressOptions,
    scratch: Path,
    progress: Progress,
) -> list[Parent]:
    """Prune as the plans ask and export every model that comes of it, once; plans with equal steps share theirs."""
    patterns = () if options.skip_layers == ("auto",) else options.skip_layers
    found = []
    for steps in dict.fromkeys(plan.pruning for plan in plans):
        own = tuple(plan for plan in plans if plan.pruning == steps)
        if not steps:
            encoded = rows.encode(origin.task, origin.encoder)
            found.append(Parent(origin, own, encoded, skip_layers=patterns))
            continue
        for smaller in pruning.models(steps):
            place = scratch / "fp32-of" / smaller.name
            source = open_pruned(smaller.folder, origin, place, input_dtype=options.input_dtype, progress=progress)
            keep_first_position(source.proto)
            publish_torch(smaller, scratch / "torch" / smaller.name)
            encoded = rows.encode(source.task, source.encoder)
            found.append(Parent(source, own, encoded, smaller, _fitting(patterns, source)))
    return found


def _fitting(patterns: Sequence[str], source: Source) -> tuple[str, ...]:
    """The patterns that name a layer here: with fewer layers one of the user's own model may name none."""
    if not patterns:
        return ()
    targets = find_targets(source.proto)
    names = [*(layer.name for layer in targets.layers), *targets.left_float]
    names += [tensor.name for tensor in source.proto.graph.initializer]
    return tuple(pattern for pattern in patterns if any(fits(name, pattern) for name in names))
