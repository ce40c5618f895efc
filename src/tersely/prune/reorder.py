"""Put the most important heads and neurons first, so that any width is a slice. The model computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..errors import UserError
from ..models.carve import locate, twin
from ..models.carve.places import HEADS, NEURONS, Cut, Places, tensors
from ..models.families import Family, find
from .importance import Importance


def reorder(model: nn.Module, importance: Importance, family: Family | None = None) -> Any:
    """A copy of a model with heads and neurons of each layer in falling importance (equal ones stay in order).

    Where layers must keep the same heads (MPNet), the order is that of the sum over layers.
    """
    family = family or find(model)
    places = locate(model, family)
    orders = {HEADS: _orders(importance.heads, places, HEADS), NEURONS: _orders(importance.neurons, places, NEURONS)}
    copied = twin(model, torch.clone)
    weights = tensors(copied)
    with torch.no_grad():
        for cut in places.cuts:
            weight = weights[cut.tensor]
            index = torch.from_numpy(_rows(cut, orders[cut.unit][cut.block or 0])).to(weight.device)
            weight.copy_(weight.index_select(cut.dim, index))
    return copied


def _orders(scores: Sequence[NDArray[np.float64]], places: Places, unit: str) -> list[NDArray[np.int64]]:
    expected = [places.count(unit, block) for block in range(len(places.blocks))]
    if [len(score) for score in scores] != expected:
        raise UserError(f"The importance is of {[len(s) for s in scores]} {unit}; the model has {expected}.")
    if unit == HEADS and places.family.heads_are_shared:
        scores = [np.sum(scores, axis=0)] * len(scores)
    return [np.argsort(-score, kind="stable") for score in scores]


def _rows(cut: Cut, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows (or columns) of a tensor in their new order: whole units, the same in each run."""
    within = (order[:, None] * cut.size + np.arange(cut.size)).ravel()
    return (np.arange(cut.times)[:, None] * (cut.count * cut.size) + within).ravel()
