r"""What pruning is to keep: a model's answers. How far they have moved, and which positions they hang on.

Of a row with one answer all outputs count alike: the distance of two models is the mean squared difference. Where a
model answers at every position (tags, ends of a span) nearly all of them are surely nothing, and their outputs may
move without harm. There it is the Kullback-Leibler divergence of the softened answers p, whose curvature by the outputs
is $\operatorname{diag}(p) - p p^\top$.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ..engines.torch import as_tuple, output_names
from ..models.carve import locate
from ..models.carve.places import HEADS, NEURONS
from ..models.families import Family
from ..progress import SILENT, Progress
from ..training.losses import ONE, QUESTION, TOKENS, Outputs, logits_loss
from .passage import real_positions
from .sample import Inputs, Key, Sample, Weights

TEMPERATURE = 2.0
"""Softens answers: with 1 a few positions that a model is unsure of say all, without end all positions count alike."""
FLOOR = 0.2
"""What a position weighs at least: this share of the mean. Nothing is known of what other rows hang on."""


@dataclass(frozen=True)
class AnswerDistance:
    """How outputs are read as answers; `kind`: the task's `loss`."""

    kind: str

    @property
    def by_position(self) -> bool:
        """Whether there is an answer at every position."""
        return self.kind in (TOKENS, QUESTION)

    def change(self, new: Outputs, old: Outputs, inputs: Inputs) -> tuple[float, float]:
        """The distance of a batch's answers from what they were, and of how many it is the sum."""
        mask = real_positions(inputs)
        if self.by_position:
            least = logits_loss(old, old, self.kind, mask, ONE, TEMPERATURE)
            moved = float(logits_loss(new, old, self.kind, mask, ONE, TEMPERATURE) - least)
            return moved, float(mask.sum() if self.kind == TOKENS else len(mask))
        total = count = 0.0
        for before, after in zip(old, new, strict=True):
            moves = (after - before).double()
            moves = moves[mask] if moves.shape[:2] == mask.shape else moves
            total, count = total + float(moves.square().sum()), count + moves.numel()
        return total, count

    def probe(self, outputs: Outputs, inputs: Inputs, signs: torch.Generator) -> torch.Tensor:
        """A number whose squared slope by anything is, in the mean over random signs, how far the answers move with it.

        That is the curvature of the distance. Padding is left out.
        """
        return torch.stack([(z * self._root(z.detach(), inputs, signs)).sum() for z in outputs]).sum()

    def _root(self, z: torch.Tensor, inputs: Inputs, signs: torch.Generator) -> torch.Tensor:
        """A random v with the curvature as the mean of v vᵀ."""
        v = torch.randint(0, 2, z.shape, generator=signs).to(z) * 2 - 1
        mask = real_positions(inputs)
        if self.by_position:
            soft = z if self.kind == TOKENS else z.masked_fill(~mask, -1e9)
            root = (soft.float() / TEMPERATURE).softmax(-1).sqrt()
            v = (root * v - root.square() * (root * v).sum(-1, keepdim=True)).to(z)
        return v * mask.view(*mask.shape, *(1 for _ in z.shape[2:])) if z.shape[:2] == mask.shape else v


def weighed(
    model: nn.Module,
    family: Family,
    sample: Sample,
    answers: AnswerDistance,
    *,
    seed: int = 42,
    progress: Progress = SILENT,
) -> Sample:
    """The sample with a weight for each position and output projection: how much the answers hang on its sum there.

    One forward and one backward pass over the sample. The mean weight is 1. Rows with one answer have none, nor has a
    layer that is passed many times (ALBERT): their positions count alike.
    """
    if family.layers_share_weights or not answers.by_position:
        return sample
    places, names = locate(model, family), output_names(model)
    modules = {
        (unit, block): model.get_submodule(places.outputs(unit)[block])
        for unit in (HEADS, NEURONS)
        for block in range(len(places.blocks))
        if places.count(unit, block)
    }
    signs = torch.Generator().manual_seed(seed)
    found: list[Weights] = []
    batches = (*sample.fitting, *sample.held_out)
    with progress.track("weigh positions", len(batches)) as advance:
        for inputs in batches:
            found.append(_slopes(model, modules, inputs, partial(_probe, answers, names, inputs, signs)))
            advance(1)
    positions = float(sum(real_positions(inputs).sum() for inputs in batches))
    means = {key: sum(float(weights[key].sum()) for weights in found) / positions for key in modules}
    scaled = [{key: _floored(weights[key], means[key]) for key in modules} for weights in found]
    count = len(sample.fitting)
    return replace(sample, fitting_weights=tuple(scaled[:count]), held_out_weights=tuple(scaled[count:]))


def _probe(
    answers: AnswerDistance, names: Sequence[str], inputs: Inputs, signs: torch.Generator, outputs: Any
) -> torch.Tensor:
    return answers.probe(as_tuple(outputs, names), inputs, signs)


def _slopes(
    model: nn.Module, modules: Mapping[Key, nn.Module], inputs: Inputs, probe: Callable[[Any], torch.Tensor]
) -> dict[Key, torch.Tensor]:
    """By projection and position, the squared norm of the probe's slope [rows, length]; 0 at padding."""
    seen: dict[Key, torch.Tensor] = {}

    def watch(key: Key) -> Callable[..., torch.Tensor]:
        def hook(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
            seen[key] = output if output.requires_grad else output.requires_grad_()
            return seen[key]

        return hook

    handles = [module.register_forward_hook(watch(key)) for key, module in modules.items()]
    try:
        with torch.enable_grad():
            slopes = torch.autograd.grad(probe(model(**inputs)), list(seen.values()), allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    mask = real_positions(inputs)
    return {
        key: torch.zeros(mask.shape) if slope is None else slope.float().square().sum(-1) * mask
        for key, slope in zip(seen, slopes, strict=True)
    }


def _floored(squares: torch.Tensor, mean: float) -> torch.Tensor:
    """Weights of which the mean is 1; where nothing hangs on a layer, all alike."""
    return FLOOR + (1 - FLOOR) * squares / mean if mean > 0 else torch.ones_like(squares)
