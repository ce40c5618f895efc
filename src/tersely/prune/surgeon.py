r"""Score heads and neurons as an optimal brain surgeon does: by what the rest of a layer cannot make good.

Per sublayer, with X what goes into its output projection W and H the covariance of X (damped): a block of units Q costs
$\operatorname{tr}(W_Q [H^{-1}]_{QQ}^{-1} W_Q^\top)$ when the others are fitted anew. The cheapest goes first, one head
or a few neurons at a time, W and H⁻¹ are updated (Frantar & Alistarh 2022; ZipLM, Kurtic et al. 2023). The harm of a
level is measured, not derived: how far the model's answers move with that one sublayer cut and fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..models.carve import twin
from ..models.carve.places import HEADS, NEURONS
from ..models.families import Family
from ..progress import SILENT, Progress
from .answers import AnswerDistance
from .importance import Importance
from .passage import Passage, real_positions
from .repair import Gram
from .sample import Inputs, Key, Sample
from .scores import Scores, level_units

AT_ONCE = 32
"""Neurons that go together before H⁻¹ is updated."""
DAMPING, DAMPING_LAST = 1e-3, 1e-2
"""Shares of the mean variance added to H's diagonal; more where a layer is seen at one position a row."""
SHARES = (0.0, 0.125, 0.25, 0.5, 0.75)
"""Shares of units left at which harm is measured; in between it is interpolated."""
JUDGED = 3_000
"""Tokens that harm is measured on."""


def surgeon(
    model: nn.Module,
    family: Family,
    sample: Sample,
    answers: AnswerDistance,
    *,
    first_only: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """Order and harms of all heads and neurons. One pass over the sample, then one for each sublayer and level."""
    work = _Surgeon(twin(model, torch.clone).eval(), family, sample, answers, first_only)
    keys = [key for key in work.keys if work.places.count(*key)]
    with progress.track("scores by surgery", len(keys) * (1 + len(SHARES))) as advance:
        work.observe(keys)
        orders: dict[Key, NDArray[np.int64]] = {}
        harms: dict[Key, NDArray[np.float64]] = {}
        for key in keys:
            orders[key] = work.order(key)
            advance(1)
        for key in keys:
            harms[key] = work.harms(key, orders[key], advance)
    parts = [
        tuple(_falling(orders.get((unit, block))) for block in range(len(work.places.blocks)))
        for unit in (HEADS, NEURONS)
    ]
    return Scores("surgeon", Importance(parts[0], parts[1], sample.rows), harms)


def _falling(order: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Numbers that fall in this order of units: the first to keep has the largest."""
    if order is None:
        return np.zeros(0)
    numbers = np.empty(len(order))
    numbers[order] = np.arange(len(order), 0, -1)
    return numbers


@dataclass
class _Surgeon:
    model: Any
    family: Family
    sample: Sample
    answers: AnswerDistance
    first_only: bool

    def __post_init__(self) -> None:
        self.passage = Passage(self.model, self.family)
        self.places = self.passage.places
        self.keys = [(unit, block) for block in range(len(self.places.blocks)) for unit in (HEADS, NEURONS)]
        self.grams: dict[Key, Gram] = {}
        self.judging = _some(self.sample.held_out, JUDGED)
        self.states: list[dict[int, torch.Tensor]] = []
        self.outputs: list[tuple[torch.Tensor, ...]] = []

    def observe(self, keys: Sequence[Key]) -> None:
        """Take the covariances of what goes into output projections, and what the model gives where harm is judged."""
        names = {key: self.places.outputs(key[0])[key[1]] for key in keys}
        self.grams = {key: Gram(self._linear(key).in_features, 0, bias=True) for key in keys}
        for inputs, weights in self.sample.weighted_fitting:
            seen = self.passage.run(inputs, names.values())
            for key, name in names.items():
                mask = real_positions(inputs, first_only=self._is_short(key))
                counts = weights[key][mask] if weights else None
                for x in seen.inputs[name]:
                    self.grams[key].add(x[mask], x.new_zeros(int(mask.sum()), 0), counts)
        for inputs in self.judging:
            seen = self.passage.run(inputs, self.places.blocks)
            inside = {} if self.family.layers_share_weights else dict(enumerate(self.places.blocks))
            self.states.append({number: seen.inputs[name][0] for number, name in inside.items()})
            self.outputs.append(seen.outputs)

    def order(self, key: Key) -> NDArray[np.int64]:
        """Units, the last to go first."""
        unit = key[0]
        count = self.places.count(*key)
        size = self._linear(key).in_features // count
        weights = self._linear(key).weight.detach().double().clone()
        inverse = torch.linalg.inv(self._covariance(key))
        left, gone = list(range(count)), []
        while left:
            if unit == HEADS:
                costs = _block_costs(weights, inverse, left, size)
                going = [left[int(costs.argmin())]]
            else:
                index = torch.tensor(left)
                costs = weights[:, index].square().sum(0) / inverse.diagonal()[index]
                going = [left[int(i)] for i in costs.argsort()[:AT_ONCE]]
            gone += going
            remaining = set(left) - set(going)
            left = [number for number in left if number in remaining]
            columns = _columns(going, size)
            part = torch.linalg.solve(inverse[columns][:, columns], inverse[columns])
            weights -= weights[:, columns] @ part
            inverse = inverse - inverse[:, columns] @ part
            inverse.diagonal()[columns] = 1.0  # out of the way: never chosen again
        return np.array(gone[::-1], dtype=np.int64)

    def harms(self, key: Key, order: NDArray[np.int64], advance: Any) -> NDArray[np.float64]:
        """How far the answers move by level, measured at a few and interpolated."""
        count = self.places.count(*key)
        tried = sorted({min(round(share * count), count - 1) for share in SHARES})
        found = {}
        linear = self._linear(key)
        weight, bias = linear.weight.detach().clone(), None if linear.bias is None else linear.bias.detach().clone()
        for number, kept in enumerate(tried):
            self._cut(key, order[:kept], weight, bias)
            found[kept] = self._change(key)
            advance(1 if number + 1 < len(tried) else 1 + len(SHARES) - len(tried))
        with torch.no_grad():
            linear.weight.copy_(weight)
            if bias is not None:
                linear.bias.copy_(bias)
        return _between(found, count, level_units(*key, self.places))

    def _cut(self, key: Key, kept: NDArray[np.int64], weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Zero the columns of units that go; fit those that stay to what all of them gave."""
        linear, size = self._linear(key), weight.shape[1] // self.places.count(*key)
        columns = _columns(kept.tolist(), size)
        covariance, mean = self._covariance(key), self._mean(key)
        new = torch.zeros_like(weight, dtype=torch.float64)
        if len(columns):
            new[:, columns] = torch.linalg.solve(
                covariance[columns][:, columns], covariance[columns] @ weight.double().T
            ).T
        with torch.no_grad():
            linear.weight.copy_(new)
            if bias is not None:
                linear.bias.copy_(bias.double() + (weight.double() - new) @ mean)

    def _change(self, key: Key) -> float:
        total = count = 0.0
        for inputs, states, before in zip(self.judging, self.states, self.outputs, strict=True):
            start = (key[1], states[key[1]]) if key[1] in states else None
            outputs = self.passage.run(inputs, start=start).outputs
            moved, answers = self.answers.change(outputs, before, inputs)
            total, count = total + moved, count + answers
        return total / max(count, 1)

    def _linear(self, key: Key) -> Any:
        return self.model.get_submodule(self.places.outputs(key[0])[key[1]])

    def _is_short(self, key: Key) -> bool:
        return self.first_only and key[1] + 1 == len(self.places.blocks) and not self.family.layers_share_weights

    def _mean(self, key: Key) -> torch.Tensor:
        gram = self.grams[key]
        return gram.squares[-1, :-1] / gram.count

    def _covariance(self, key: Key) -> torch.Tensor:
        gram, mean = self.grams[key], self._mean(key)
        found = gram.squares[:-1, :-1] / gram.count - mean[:, None] * mean
        damping = DAMPING_LAST if self._is_short(key) else DAMPING
        found.diagonal().add_(damping * float(found.diagonal().mean()) + 1e-12)
        return found


def _block_costs(weights: torch.Tensor, inverse: torch.Tensor, left: Sequence[int], size: int) -> torch.Tensor:
    costs = []
    for number in left:
        columns = slice(number * size, (number + 1) * size)
        part = weights[:, columns]
        costs.append((torch.linalg.solve(inverse[columns, columns], part.T) * part.T).sum())
    return torch.stack(costs)


def _columns(units: Sequence[int], size: int) -> torch.Tensor:
    return (torch.tensor(list(units), dtype=torch.long)[:, None] * size + torch.arange(size)).flatten()


def _some(batches: Sequence[Inputs], tokens: int) -> list[Inputs]:
    """Batches spread over all, with so many tokens."""
    total = sum(int(real_positions(inputs).sum()) for inputs in batches)
    every = max(1, round(total / tokens))
    return list(batches[::every])


def _between(found: dict[int, float], count: int, units: Sequence[int]) -> NDArray[np.float64]:
    """Harm at every level: a line through logarithms of units gone and harm; none where all stay."""
    gone = np.array([count - kept for kept in sorted(found, reverse=True)], dtype=float)
    harm = np.maximum.accumulate([max(found[kept], 1e-12) for kept in sorted(found, reverse=True)])
    x, y = np.log(gone), np.log(harm)
    slope = float(np.clip((y[1] - y[0]) / (x[1] - x[0]), 1.0, 3.0)) if len(x) > 1 else 2.0
    values = []
    for kept in units:
        if kept == count:
            values.append(0.0)
        elif np.log(count - kept) < x[0]:
            values.append(float(np.exp(y[0] + slope * (np.log(count - kept) - x[0]))))
        else:
            values.append(float(np.exp(np.interp(np.log(count - kept), x, y))))
    return np.array(values)
