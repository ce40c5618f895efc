r"""Repair a pruned model without training: output projections are fitted to what the full model computes.

Bottom up, attention before FFN: with X what goes into a projection of the pruned model, R its residual input, and T the
full model's sum of residual and projection before the norm, the new weights minimise
$\lVert X W^\top + b - (T - R) \rVert^2 + \lambda \lVert W - W_0 \rVert^2$ over real positions, each with the weight
that the answers hang on it by, where the sample has weights. So a layer makes good
what the layers below it lost, too. λ is the best of `DAMPING` on held-out rows; where none helps there, W stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..models.carve.places import HEADS, NEURONS
from ..models.families import Family
from ..models.families.family import path_and_times
from ..progress import SILENT, Progress
from .passage import Passage, Seen, real_positions
from .sample import Inputs, Sample, Weights

DAMPING = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Shares of the mean square of an input that are tried as λ."""
TINY = 1e-9
"""Keeps sums of inputs that are all zero solvable."""


@dataclass(frozen=True)
class Repaired:
    """What became of one projection: the share of the squared error on held-out rows that is left, and λ's share.

    `damping` is None where no repair helped, and the weights stayed.
    """

    name: str
    left: float
    damping: float | None


@dataclass
class Gram:
    """Streamed sums of least squares: XᵀX, XᵀE and the sum of E², with a column of ones for the bias."""

    width: int
    outputs: int
    bias: bool
    count: float = 0
    squares: torch.Tensor = field(init=False)
    products: torch.Tensor = field(init=False)
    error: float = 0.0

    def __post_init__(self) -> None:
        size = self.width + self.bias
        self.squares = torch.zeros(size, size, dtype=torch.float64)
        self.products = torch.zeros(size, self.outputs, dtype=torch.float64)

    def add(self, x: torch.Tensor, e: torch.Tensor, weights: torch.Tensor | None = None) -> None:
        """Count inputs [positions, width] and errors [positions, outputs]; `weights` [positions]: how much each."""
        if self.bias:
            x = torch.cat([x, x.new_ones(len(x), 1)], 1)
        if weights is not None:
            roots = weights.sqrt()[:, None].to(x)
            x, e = x * roots, e * roots
        self.squares += (x.T @ x).double()
        self.products += (x.T @ e).double()
        self.error += float(e.double().square().sum())
        self.count += len(x) if weights is None else float(weights.double().sum())

    def merged(self, other: Gram) -> Gram:
        """The sums over both."""
        both = Gram(self.width, self.outputs, self.bias, self.count + other.count)
        both.squares, both.products = self.squares + other.squares, self.products + other.products
        both.error = self.error + other.error
        return both

    def solve(self, damping: float) -> torch.Tensor:
        """The change of weights [width, outputs] (and bias, last) that makes the error smallest."""
        diagonal = self.squares.diagonal()
        penalty = torch.full_like(diagonal, damping * float(diagonal[: self.width].mean()) if self.width else 0.0)
        if self.bias:
            penalty[-1] = 1e-9 * max(self.count, 1.0)
        root = torch.linalg.cholesky(self.squares + torch.diag(penalty + TINY))
        return torch.cholesky_solve(self.products, root)

    def error_with(self, change: torch.Tensor) -> float:
        """The sum of squared errors that a change of weights leaves."""
        cross = float((change * self.products).sum())
        return self.error - 2 * cross + float((change * (self.squares @ change)).sum())


def repair(
    full: nn.Module,
    pruned: nn.Module,
    family: Family,
    sample: Sample,
    *,
    first_only: bool = False,
    progress: Progress = SILENT,
) -> list[Repaired]:
    """Fit the output projections of a pruned model, in place. Both models are in eval mode, of the same depth.

    `first_only`: the model's head reads the first position alone, and so does the fit of its last layer. Costs one pass
    of the full model over the sample and about two of the pruned one.
    """
    work = _Repair(Passage(full, family), Passage(pruned, family), family, sample, first_only)
    with progress.track("repair", 2 * len(work.student.places.blocks)) as advance:
        found = []
        for block in range(len(work.student.places.blocks)):
            for unit in (HEADS, NEURONS):
                found.append(work.fit(block, unit))
                advance(1)
            work.go_on(block)
    return found


class _Repair:
    """The two models side by side, at the input of the layer that is fitted."""

    def __init__(self, teacher: Passage, student: Passage, family: Family, sample: Sample, first_only: bool) -> None:
        self.teacher, self.student, self.family, self.first_only = teacher, student, family, first_only
        self.batches: Sequence[tuple[Inputs, Weights]] = (*sample.weighted_fitting, *sample.weighted_held_out)
        self.fitting = len(sample.fitting)
        self.taught: list[torch.Tensor | None] = [None] * len(self.batches)
        self.learnt: list[torch.Tensor | None] = [None] * len(self.batches)
        self.sums: list[list[torch.Tensor]] = [[] for _ in self.batches]
        """What the teacher's FFN and its residual add up to, by application of the layer."""

    def fit(self, block: int, unit: str) -> Repaired:
        name = self.student.places.outputs(unit)[block]
        linear: Any = self.student.model.get_submodule(name)
        hidden, bias = linear.out_features, linear.bias is not None
        grams = [Gram(linear.in_features, hidden, bias) for _ in range(2)]
        for number, (inputs, weights) in enumerate(self.batches):
            targets = self._targets(number, inputs, block, unit)
            seen = self._learn(number, inputs, block, stop=name)
            mask = self._mask(inputs, block)
            counts = weights[unit, block][mask] if weights else None
            for target, x, residual in zip(targets, seen.inputs[name], self._residuals(seen, block, unit), strict=True):
                x = x[..., : linear.in_features][mask]
                e = target - residual[mask] - nn.functional.linear(x, linear.weight, linear.bias).detach()
                grams[number >= self.fitting].add(x, e, counts)
        return _apply(name, linear, *grams)

    def go_on(self, block: int) -> None:
        """Take the student to the next layer."""
        blocks = self.student.places.blocks
        if self.family.layers_share_weights or block + 1 == len(blocks):
            return
        for number, (inputs, _) in enumerate(self.batches):
            seen = self._learn(number, inputs, block, stop=blocks[block + 1])
            self.learnt[number] = seen.inputs[blocks[block + 1]][0]

    def _targets(self, number: int, inputs: Inputs, block: int, unit: str) -> list[torch.Tensor]:
        """The teacher's sums of residual and projection [positions, hidden]; one pass gives both of a layer."""
        mask = self._mask(inputs, block)
        if unit == NEURONS:
            return self.sums[number]
        places = self.teacher.places
        outputs = [places.outputs(kind)[block] for kind in (HEADS, NEURONS)]
        following = None
        if not self.family.layers_share_weights and block + 1 < len(places.blocks):
            following = places.blocks[block + 1]
        watch = (places.blocks[block], self._ffn_in(self.teacher, block), *outputs)
        state = self.taught[number]
        start = None if state is None else (block, state)
        seen = self.teacher.run(inputs, watch, start=start, stop=following)
        if following:
            self.taught[number] = seen.inputs[following][0]
        attention, ffn = (
            [
                r[mask] + o[mask]
                for r, o in zip(self._residuals(seen, block, kind, self.teacher), seen.outputs_of[name], strict=True)
            ]
            for kind, name in zip((HEADS, NEURONS), outputs, strict=True)
        )
        self.sums[number] = ffn
        return attention

    def _learn(self, number: int, inputs: Inputs, block: int, stop: str) -> Seen:
        places = self.student.places
        watch = {places.blocks[block], places.outputs(HEADS)[block], self._ffn_in(self.student, block)}
        state = self.learnt[number]
        if self.family.layers_share_weights:  # its one layer is passed many times: no stop within
            return self.student.run(inputs, {*watch, stop})
        return self.student.run(inputs, watch, start=None if state is None else (block, state), stop=stop)

    def _residuals(self, seen: Seen, block: int, unit: str, passage: Passage | None = None) -> list[torch.Tensor]:
        """What a projection's output is added to, by application of the layer."""
        passage = passage or self.student
        before = seen.inputs[passage.places.blocks[block]]
        if unit == HEADS:
            return before
        if self.family.norm_first:
            projected = seen.outputs_of[passage.places.outputs(HEADS)[block]]
            return [r + o for r, o in zip(before, projected, strict=True)]
        return seen.inputs[self._ffn_in(passage, block)]

    def _ffn_in(self, passage: Passage, block: int) -> str:
        return f"{passage.places.blocks[block]}.{path_and_times(self.family.ffn_in[0])[0]}"

    def _mask(self, inputs: Inputs, block: int) -> torch.Tensor:
        last = block + 1 == len(self.student.places.blocks) and not self.family.layers_share_weights
        return real_positions(inputs, first_only=self.first_only and last)


def _apply(name: str, linear: Any, fitting: Gram, judging: Gram) -> Repaired:
    """Set the weights that are best on held-out rows, fitted on all; or leave them."""
    errors = {damping: judging.error_with(fitting.solve(damping)) for damping in DAMPING}
    best = min(errors, key=lambda damping: errors[damping])
    if judging.count == 0 or not errors[best] < judging.error:
        return Repaired(name, 1.0, None)
    change = fitting.merged(judging).solve(best).to(linear.weight.dtype)
    with torch.no_grad():
        linear.weight += change[: linear.in_features].T
        if linear.bias is not None:
            linear.bias += change[-1]
    return Repaired(name, errors[best] / judging.error, best)
