"""Which part of which tensor of the full model each tensor of a smaller one is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import nn

from ...errors import UserError
from .places import HEADS, NEURONS, Cut, Places
from .shape import Shape


@dataclass(frozen=True)
class Slice:
    """Ranges of rows (`dim` 0) or columns (1) of a tensor of the full model; without ranges, all of it."""

    source: str
    dim: int = 0
    ranges: tuple[tuple[int, int], ...] = ()

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view where there is one range or none; several (stacked layers) are put together in a new tensor.

        >>> Slice("w", 0, ((0, 1), (2, 3))).of(torch.arange(4))
        tensor([0, 2])
        """
        parts = [tensor.narrow(self.dim, start, end - start) for start, end in self.ranges]
        return torch.cat(parts, self.dim) if len(parts) > 1 else parts[0] if parts else tensor


def slices(model: nn.Module, places: Places, shape: Shape) -> dict[str, Slice]:
    """By the names that tensors have in the smaller model, parameters and buffers alike, those of no layer too."""
    check_shape(places, shape)
    cuts = {cut.tensor: cut for cut in places.cuts}
    there = _new_numbers(places, shape)
    found = {}
    for name in tensor_names(model):
        block, rest = _split(name, places)
        if block is None:
            found[name] = _slice(name, cuts.get(name), shape)
        elif block in there:
            found[f"{places.layers}.{there[block]}.{rest}"] = _slice(name, cuts.get(name), shape, there[block])
    return found


def check_shape(places: Places, shape: Shape) -> None:
    """Refuse a shape that is no part of the model's own."""
    full, family = places.full, places.family
    if shape.layers[-1] >= len(full.layers):
        raise UserError(f"The shape names layer {shape.layers[-1]}; the model has {len(full.layers)}.")
    for unit, sizes, most in ((HEADS, shape.heads, full.heads), (NEURONS, shape.ffn, full.ffn)):
        for new, old in enumerate(shape.layers):
            if sizes[new] > most[old]:
                raise UserError(f"The shape has {sizes[new]} {unit} in layer {old}; the model has {most[old]}.")
    if family.heads_are_shared and len(set(shape.heads)) > 1:
        raise UserError(f"All layers of '{family.model_type}' must keep the same number of heads. Got {shape.heads}.")
    if family.layers_share_weights and len(set(shape.ffn)) > 1:
        raise UserError(f"All layers of '{family.model_type}' share one FFN. Got the sizes {shape.ffn}.")


def tensor_names(model: nn.Module) -> Iterator[str]:
    """Names of all parameters and buffers; those of a tensor that serves twice, once for each."""
    parameters = model.named_parameters(remove_duplicate=False)
    return (name for name, _ in chain(parameters, model.named_buffers(remove_duplicate=False)))


def _new_numbers(places: Places, shape: Shape) -> dict[int, int]:
    """Old block to new block."""
    return {0: 0} if places.family.layers_share_weights else {old: new for new, old in enumerate(shape.layers)}


def _split(name: str, places: Places) -> tuple[int | None, str]:
    if not name.startswith(f"{places.layers}."):
        return None, name
    number, _, rest = name[len(places.layers) + 1 :].partition(".")
    return int(number), rest


def _slice(name: str, cut: Cut | None, shape: Shape, block: int = 0) -> Slice:
    if cut is None:
        return Slice(name)
    kept = (shape.heads if cut.unit == HEADS else shape.ffn)[block]
    if kept == cut.count:
        return Slice(name)
    run = cut.count * cut.size
    return Slice(name, cut.dim, tuple((i * run, i * run + kept * cut.size) for i in range(cut.times)))
