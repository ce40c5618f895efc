"""What the layers of a model give, of any model of a described family: what distillation compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..models.carve import locate
from ..models.families import Family


@contextmanager
def record_states(model: nn.Module, family: Family) -> Iterator[list[torch.Tensor]]:
    """Record the embeddings' output and every layer's, [rows, length, hidden] each, of the forwards inside.

    `hidden_states` without asking the model for them: one of the user's own that gives logits alone is as good. For
    one forward the list holds one more than there are layers. Costs nothing but their memory.
    """
    states: list[torch.Tensor] = []
    places = locate(model, family)

    def before(_module: nn.Module, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        if not states:
            states.append(inputs[0] if inputs else named["hidden_states"])

    def after(_module: nn.Module, _inputs: Any, output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple) else output)

    blocks = [model.get_submodule(name) for name in places.blocks]
    handles = [blocks[0].register_forward_pre_hook(before, with_kwargs=True)]
    handles += [block.register_forward_hook(after) for block in blocks]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()
