"""A model on which a description of a family is tried: weights drawn anew, FP64, one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import nn

from ..engines.torch import as_tuple, input_names, output_names
from ..errors import UserError
from ..graphs.export import sample_batches
from ..models.carve import locate, twin
from ..models.carve.places import NEURONS
from ..models.families import Family
from ..tasks import heads

TOLERANCE = 1e-5
"""How far logits may be off, as a share of the largest. In FP64: all that is left is what a model itself rounds."""


class Trial:
    """A family's description, a model of it, a batch, and the model's logits on it."""

    def __init__(self, family: Family, model: Any, batch: Mapping[str, torch.Tensor] | None) -> None:
        self.family, self.model = family, _drawn(model)
        self.places = locate(self.model, family)
        if batch is None:
            usual = sample_batches(self.model, input_names(self.model))[0]
            batch = {name: torch.from_numpy(array) for name, array in usual.items()}
        self.batch = dict(batch)
        self.logits = self.run(self.model, "the model itself")

    def run(self, model: Any, what: str) -> torch.Tensor:
        """All that a model gives, in one row; `what` names it in messages."""
        try:
            with torch.no_grad():
                return flat(model, model(**self.batch))
        except (RuntimeError, ValueError, IndexError) as error:
            reason = str(error).splitlines()[0]
            raise self.broken(f"{what} does not run ({reason}); is a layer or an attribute left out?") from error

    def expect_same(self, got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
        """Compare logits."""
        off, largest = (got - expected).abs().max().item(), expected.abs().max().item()
        if not off <= TOLERANCE * max(1.0, largest):
            raise self.broken(f"{what}; logits are off by {off:.1e}, the largest is {largest:.1e}")

    def broken(self, what: str) -> AssertionError:
        """Say what is wrong with the description."""
        return AssertionError(f"The description of '{self.family.model_type}' is not right: {what}.")

    def attribute(self, block: str, path: str) -> int:
        """A number that a layer holds."""
        owner, _, leaf = f"{block}.{path}".rpartition(".")
        return int(getattr(self.model.get_submodule(owner), leaf))

    @contextmanager
    def zeroed(self, unit: str, block: int, count: int) -> Iterator[None]:
        """Multiply the first heads or neurons of a block by zero for a while."""
        size = 1 if unit == NEURONS else self.attribute(self.places.blocks[block], self.family.head_size)

        def zero(_module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            kept = inputs[0].clone()
            kept[..., : count * size] = 0
            return (kept, *inputs[1:])

        handle = self.model.get_submodule(self.places.outputs(unit)[block]).register_forward_pre_hook(zero)
        try:
            yield
        finally:
            handle.remove()


def flat(model: Any, output: Any) -> torch.Tensor:
    """Every tensor that a model gave, in one row."""
    return torch.cat([tensor.flatten() for tensor in as_tuple(output, output_names(model))])


def _drawn(model: Any) -> Any:
    """The model in FP64 and eval mode, its weights drawn so that every part makes a difference."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = _built(model) if isinstance(model, transformers.PretrainedConfig) else model
        if not isinstance(made, nn.Module):
            raise UserError(f"A model or a config is expected. Got {type(model).__name__}.")
        drawn = twin(made, torch.clone).double().eval().requires_grad_(True)
        with torch.no_grad():
            for name, parameter in drawn.named_parameters():
                near = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
                spread = 0.1 if parameter.ndim == 1 else 1.5 * parameter.shape[-1] ** -0.5
                parameter.copy_(near + spread * torch.randn_like(parameter))
    return drawn


def _built(config: Any) -> Any:
    for task in heads():
        auto = getattr(transformers, f"AutoModelFor{task}")
        if type(config) in auto._model_mapping:
            return auto.from_config(config)
    raise UserError(f"transformers has no model with a head for '{config.model_type}'.", hint="Give the model itself.")
