"""Make smaller models: in place, as a skeleton without weights, and as a copy with weights of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import nn

from ..families import Family, Stacked
from ..families.family import path_and_times
from .empty import empty
from .places import Places, find_module, locate, owner_and_name, slices, tensors
from .shape import CONFIG_KEY, Shape


def carve(model: nn.Module, family: Family, shape: Shape) -> Any:
    """A smaller model of the same class with weights of its own: the first heads and neurons of the layers kept.

    The model given stays as it is. Takes the time of copying the weights that are kept.
    """
    places = locate(model, family)
    parts = slices(model, places, shape)
    smaller = skeleton(model, family, shape)
    full, empty = tensors(model), tensors(smaller)
    made: dict[int, torch.Tensor] = {}  # a tensor that serves twice stays one
    for name, part in parts.items():
        old = empty[name]
        if id(old) not in made:
            new = part.of(full[part.source].detach()).clone(memory_format=torch.contiguous_format)
            made[id(old)] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
        put(smaller, name, made[id(old)])
    return smaller


def skeleton(model: nn.Module, family: Family, shape: Shape) -> Any:
    """A smaller model of the same class whose tensors are on the meta device: it runs with tensors lent to it."""
    return shrink(twin(model, lambda tensor: torch.empty_like(tensor, device="meta")), family, shape)


def shrink(model: Any, family: Family, shape: Shape) -> Any:
    """Make a model smaller in place, and note the shape in its config. Gives the model back."""
    places = locate(model, family)
    parts, full = slices(model, places, shape), tensors(model)
    _drop_layers(model, places, shape)
    for name, part in parts.items():
        if part.ranges:
            tensor = full[part.source]
            put(model, name, nn.Parameter(part.of(tensor.detach()).clone(), tensor.requires_grad))
    _set_counts(model, places, shape)
    if places.config is not None:
        setattr(getattr(model, "config", places.config), CONFIG_KEY, shape.standing_alone.to_json())
    return model


def twin(model: nn.Module, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A second model of its own whose tensors are what `convert` makes of the first's, without its gradients."""
    memo: dict[int, Any] = {}
    for tensor in chain(model.parameters(), model.buffers()):
        made = convert(tensor.detach())
        is_weight = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(made, requires_grad=tensor.requires_grad) if is_weight else made
    copied = copy.deepcopy(model, memo)
    if "_original_forward" in vars(copied):  # a Trainer's mixed precision, which accelerate leaves on what it trained
        del copied.forward, copied._original_forward
    return copied


def put(model: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Set a parameter or buffer to a tensor of another size, and the sizes that its module tells."""
    path, _, leaf = name.rpartition(".")
    owner = model.get_submodule(path)
    (owner._parameters if leaf in owner._parameters else owner._buffers)[leaf] = tensor
    if leaf == "weight" and isinstance(owner, nn.Linear):
        owner.out_features, owner.in_features = tensor.shape
    if leaf == "weight" and isinstance(owner, nn.Embedding):
        owner.num_embeddings, owner.embedding_dim = tensor.shape


def _drop_layers(model: nn.Module, places: Places, shape: Shape) -> None:
    if len(shape.layers) == len(places.full.layers):
        return
    family, config = places.family, places.config
    if not family.layers_share_weights:
        old = model.get_submodule(places.layers)
        kept = nn.ModuleList([old[number] for number in shape.layers])
        kept.training = old.training
        model.set_submodule(places.layers, kept)
    if config is not None:
        config.num_hidden_layers = len(shape.layers)
        for name in family.layer_lists:
            values = getattr(config, name)
            setattr(config, name, [values[number] for number in shape.layers])


def _set_counts(model: nn.Module, places: Places, shape: Shape) -> None:
    family = places.family
    blocks = 1 if family.layers_share_weights else len(shape.layers)
    for block in range(blocks):
        layer, heads = f"{places.layers}.{block}", shape.heads[block]
        size = int(getattr(*owner_and_name(model, f"{layer}.{family.head_size}", family)))
        if heads == 0:
            _empty(model, layer, (*family.attention_in, *family.attention_in_if_there), family.attention_out, size)
            heads = 1  # one of zeros, that nobody reads, stands in
        if shape.ffn[block] == 0:
            _empty(model, layer, family.ffn_in, family.ffn_out, 1)
        for paths, value in ((family.head_count, heads), (family.head_width, heads * size)):
            for path in paths:
                setattr(*owner_and_name(model, f"{layer}.{path}", family), value)


def _empty(model: nn.Module, layer: str, inputs: tuple[str | Stacked, ...], output: str, stand_in: int) -> None:
    """Let the linear layers of a sublayer without units run."""
    for part in inputs:
        path, times = path_and_times(part)
        linear = find_module(model, f"{layer}.{path}")
        if linear is not None:  # some are there in some models only
            empty(linear, times * stand_in)
    empty(model.get_submodule(f"{layer}.{output}"), None)
