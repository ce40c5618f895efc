"""Where a family's heads and neurons lie in one model's tensors, and which part of each a smaller model takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn

from ...errors import UserError
from ..families import Family, Stacked
from ..families.family import path_and_times
from .shape import Shape

HEADS, NEURONS = "heads", "neurons"


@dataclass(frozen=True)
class Cut:
    """One dimension of one tensor that goes by heads or neurons: `times` runs of `count` units of `size` rows.

    `block` is the layer whose units these are; None where they are those of all layers.
    """

    tensor: str
    dim: int
    unit: str
    block: int | None
    times: int
    count: int
    size: int


@dataclass(frozen=True)
class Places:
    """A family's parts in one model, by name; `blocks` are the layers that have weights (ALBERT: one)."""

    family: Family
    layers: str
    blocks: tuple[str, ...]
    config: Any
    full: Shape
    cuts: tuple[Cut, ...]

    def outputs(self, unit: str) -> tuple[str, ...]:
        """The linear layer of each block that takes in the heads' context, or the neurons' activation."""
        path = self.family.attention_out if unit == HEADS else self.family.ffn_out
        return tuple(f"{block}.{path}" for block in self.blocks)

    def count(self, unit: str, block: int) -> int:
        """How many heads or neurons a block has."""
        return (self.full.heads if unit == HEADS else self.full.ffn)[block]


def shape_of(model: nn.Module, family: Family) -> Shape:
    """The shape that a model has."""
    return locate(model, family).full


def locate(model: nn.Module, family: Family) -> Places:
    """Find a family's parts in a model; a UserError names the first that is not where the description says."""
    name, encoder = _encoder(model, family)
    config: Any = getattr(encoder, "config", None) or getattr(model, "config", None)
    if family.refuse is not None and (reason := family.refuse(config)):
        raise UserError(f"This {family.model_type} model cannot be pruned: {reason}.")
    layers = _join(name, family.layers)
    blocks = tuple(f"{layers}.{number}" for number in range(len(model.get_submodule(layers))))
    read = [_Block(model, family, number, block) for number, block in enumerate(blocks)]
    repeats = _applied(config, family) if family.layers_share_weights else 1
    full = Shape(
        tuple(block.heads for block in read) * repeats,
        tuple(block.neurons for block in read) * repeats,
        tuple(range(len(blocks) * repeats)),
    )
    cuts = [cut for block in read for cut in block.cuts()]
    cuts += [cut for table in family.head_tables for cut in _table(model, family, _join(name, table), full)]
    return Places(family, layers, blocks, config, full, tuple(cuts))


def _applied(config: Any, family: Family) -> int:
    if not hasattr(config, "num_hidden_layers"):
        raise misfit("its layers share weights, and no config says 'num_hidden_layers'", family)
    return int(config.num_hidden_layers)


class _Block:
    """One layer while it is looked at."""

    def __init__(self, model: nn.Module, family: Family, number: int, name: str) -> None:
        self.model, self.family, self.number, self.name = model, family, number, name
        self.size = int(getattr(*owner_and_name(model, f"{name}.{family.head_size}", family)))
        width, self.neurons = (self.linear(path).in_features for path in (family.attention_out, family.ffn_out))
        self.heads = width // self.size
        if width != self.heads * self.size:
            self.refuse(family.attention_out, f"takes {width} inputs, no multiple of the head size {self.size}")

    def linear(self, path: str) -> Any:
        return _module(self.model, f"{self.name}.{path}", nn.Linear, self.family)

    def cuts(self) -> Iterator[Cut]:
        family = self.family
        there = [part for part in family.attention_in_if_there if self.has(part)]
        yield from self.outputs((*family.attention_in, *there), HEADS, self.heads, self.size)
        yield from self.outputs(family.ffn_in, NEURONS, self.neurons, 1)
        yield Cut(f"{self.name}.{family.attention_out}.weight", 1, HEADS, self.number, 1, self.heads, self.size)
        yield Cut(f"{self.name}.{family.ffn_out}.weight", 1, NEURONS, self.number, 1, self.neurons, 1)

    def has(self, part: str | Stacked) -> bool:
        return find_module(self.model, f"{self.name}.{path_and_times(part)[0]}") is not None

    def outputs(self, parts: tuple[str | Stacked, ...], unit: str, count: int, size: int) -> Iterator[Cut]:
        for part in parts:
            path, times = path_and_times(part)
            linear = self.linear(path)
            if linear.out_features != times * count * size:
                expected = f"{times * count * size} ({f'{times} times ' if times > 1 else ''}{count} {unit} of {size})"
                self.refuse(path, f"gives {linear.out_features} outputs; {expected} are expected")
            yield Cut(f"{self.name}.{path}.weight", 0, unit, self.number, times, count, size)
            if linear.bias is not None:
                yield Cut(f"{self.name}.{path}.bias", 0, unit, self.number, times, count, size)

    def refuse(self, path: str, what: str) -> None:
        raise misfit(f"'{self.name}.{path}' {what}", self.family)


def _encoder(model: nn.Module, family: Family) -> tuple[str, Any]:
    """The one module that has the family's layers, by name: the model itself or something in it."""
    # A path with numbers in it (ALBERT's) leads through a ModuleList, so that this looks at modules, not attributes.
    found = [
        (name, part)
        for name, part in model.named_modules()
        if isinstance(find_module(part, family.layers), nn.ModuleList) and len(part.get_submodule(family.layers))
    ]
    if len(found) != 1:
        names = f" ({', '.join(repr(name) for name, _ in found)})" if found else ""
        what = f"{type(model).__name__} has {len(found) or 'no'} modules with a list '{family.layers}'{names}"
        raise misfit(what, family)
    return found[0]


def _table(model: nn.Module, family: Family, name: str, full: Shape) -> Iterator[Cut]:
    table = _module(model, name, nn.Embedding, family)
    if len(set(full.heads)) != 1 or table.embedding_dim != full.heads[0]:
        columns = f"{table.embedding_dim} columns; the layers have {sorted(set(full.heads))} heads"
        raise misfit(f"'{name}' has {columns}", family)
    yield Cut(f"{name}.weight", 1, HEADS, None, 1, full.heads[0], 1)


def _module(model: nn.Module, name: str, kind: type, family: Family) -> Any:
    part = find_module(model, name)
    if not isinstance(part, kind):
        there = "nothing" if part is None else f"a {type(part).__name__}"
        raise misfit(f"there is {there} at '{name}'; a {kind.__name__} is expected", family)
    return part


def owner_and_name(model: nn.Module, path: str, family: Family) -> tuple[Any, str]:
    """The module that has the attribute of this path, and the attribute's name there."""
    parent, _, name = path.rpartition(".")
    owner = find_module(model, parent)
    if owner is None or not hasattr(owner, name):
        raise misfit(f"there is no attribute '{path}'", family)
    return owner, name


def find_module(model: nn.Module, name: str) -> Any:
    """A module by its path, or None."""
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def misfit(what: str, family: Family) -> UserError:
    """Say what in a model is not as a description has it."""
    hint = "Describe it in a tersely.models.families.Family of its own: docs/how_to/describe_a_family.md."
    return UserError(f"The description of '{family.model_type}' does not fit the model: {what}.", hint=hint)


def _join(*names: str) -> str:
    return ".".join(name for name in names if name)


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
    _check_shape(places, shape)
    cuts = {cut.tensor: cut for cut in places.cuts}
    kept = (0,) if places.family.layers_share_weights else shape.layers
    new_numbers = {old: new for new, old in enumerate(kept)}
    found = {}
    for name in tensors(model):
        if not name.startswith(f"{places.layers}."):
            found[name] = _slice(name, cuts.get(name), shape)
            continue
        number, _, rest = name.removeprefix(f"{places.layers}.").partition(".")
        if int(number) in new_numbers:
            new = new_numbers[int(number)]
            found[f"{places.layers}.{new}.{rest}"] = _slice(name, cuts.get(name), shape, new)
    return found


def _check_shape(places: Places, shape: Shape) -> None:
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


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name; those that serve twice under each."""
    named = chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    return dict(named)


def _slice(name: str, cut: Cut | None, shape: Shape, block: int = 0) -> Slice:
    kept = 0 if cut is None else (shape.heads if cut.unit == HEADS else shape.ffn)[block]
    if cut is None or kept == cut.count:
        return Slice(name)
    run = cut.count * cut.size
    return Slice(name, cut.dim, tuple((i * run, i * run + kept * cut.size) for i in range(cut.times)))
