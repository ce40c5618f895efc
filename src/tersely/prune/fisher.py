r"""Score heads and neurons by one backward pass (Kwon et al. 2022, with outputs in the place of a loss).

A head's or neuron's harm is how far the answers move when its mask falls from 1 to 0, to first order in the outputs
z: $(\partial z / \partial m)^\top C (\partial z / \partial m)$ with C the curvature of the distance of answers. With
random v whose v vᵀ has C as its mean, the one gradient of $\sum_k v_k z_k$ has this as the mean of its square. Labels
are not needed. Harms of several units add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ..engines.torch import as_tuple, output_names
from ..models.carve import locate, twin
from ..models.carve.places import HEADS, NEURONS
from ..models.families import Family
from ..progress import SILENT, Progress
from .answers import AnswerDistance
from .importance import Importance, masked
from .sample import Inputs
from .scores import Scores, level_units


def fisher(
    model: nn.Module,
    family: Family,
    batches: Sequence[Inputs],
    answers: AnswerDistance,
    *,
    seed: int = 42,
    progress: Progress = SILENT,
) -> Scores:
    """Order and harms of all heads and neurons; one forward and one backward pass over the batches."""
    copied: Any = twin(model, lambda tensor: tensor).eval().requires_grad_(False)
    places, names = locate(copied, family), output_names(model)
    keys = [
        (unit, block) for unit in (HEADS, NEURONS) for block in range(len(places.blocks)) if places.count(unit, block)
    ]
    sums = {key: np.zeros(places.count(*key)) for key in keys}
    signs = torch.Generator().manual_seed(seed)
    samples = 0
    with progress.track("scores by gradients", len(batches)) as advance:
        for inputs in batches:
            with torch.enable_grad(), masked(copied, places) as masks:
                total = answers.probe(as_tuple(copied(**inputs), names), inputs, signs)
                slopes = torch.autograd.grad(total, [masks[key] for key in keys])
            for key, slope in zip(keys, slopes, strict=True):
                sums[key] += slope.double().square().sum(0).numpy()
            samples += len(slopes[0])
            advance(1)
    parts = [
        tuple(sums.get((unit, block), np.zeros(0)) / samples for block in range(len(places.blocks)))
        for unit in (HEADS, NEURONS)
    ]
    found = Importance(parts[0], parts[1], samples)
    harms = {key: _harms(sums[key] / samples, level_units(*key, places)) for key in keys}
    return Scores("fisher", found, harms)


def _harms(squares: Any, units: Sequence[int]) -> Any:
    """The sum over those units that a level drops, least important first."""
    rising = np.concatenate([[0.0], np.cumsum(np.sort(squares))])
    return np.array([rising[len(squares) - kept] for kept in units])
