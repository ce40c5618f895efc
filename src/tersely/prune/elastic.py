"""Any number of smaller networks inside one full model: no copy of weights, gradients in the full parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import nn

from ..errors import UserError, nearest
from ..models.carve import Shape, Slice, carve, locate, skeleton, slices
from ..models.families import Family, find
from ..training.teacher import record_states

FULL = "full"


@final
class Elastic(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """The full model, run at any of some shapes by name; `full` is the model itself.

    All parameters, buffers and saved state are the full model's. A smaller network is a skeleton of the model's own
    class to which slices of these are lent for one call: views, but for stacked layers (ModernBERT), whose slices are
    put together anew each time. Lending takes about 2 ms for 12 layers. Gradient checkpointing, which calls layers
    again after the call, does not work with it.
    """

    def __init__(self, model: nn.Module, shapes: Mapping[str, Shape], family: Family | None = None) -> None:
        super().__init__()
        self.model = model
        self.family = family or find(model)
        self.shapes = dict(shapes)
        if FULL in self.shapes:
            raise UserError(f"A shape cannot be called '{FULL}': that is the model itself.")
        if any(getattr(part, "gradient_checkpointing", False) for part in model.modules()):
            self.gradient_checkpointing_enable()
        places = locate(model, self.family)
        # In tuples, out of reach of nn.Module: a skeleton's tensors are nobody's parameters.
        self._smaller: dict[str, tuple[Any, dict[str, Slice]]] = {}
        for name, shape in self.shapes.items():
            bones = skeleton(model, self.family, shape)
            once = {name for name, _ in [*bones.named_parameters(), *bones.named_buffers()]}
            cut = slices(model, places, shape)
            self._smaller[name] = bones, {name: part for name, part in cut.items() if name in once}

    @property
    def config(self) -> Any:
        """The full model's."""
        return self.model.config

    def forward(self, shape: str = FULL, *, states: bool = False, **inputs: Any) -> Any:
        """Run the network of a shape: what the model itself gives, hidden states included when asked for.

        With `states`, a pair of that and what `record_states` records, which no model need be asked for.
        """
        bones, lent = self._lookup(shape)
        if not states:
            return self._run(bones, lent, inputs)
        with record_states(bones, self.family) as recorded:
            return self._run(bones, lent, inputs), tuple(recorded)

    def carved(self, shape: str) -> Any:
        """The network of a shape as a model of its own, with a copy of the weights as they are now."""
        self._lookup(shape)
        full = locate(self.model, self.family).full
        return carve(self.model, self.family, self.shapes.get(shape, full))

    def gradient_checkpointing_enable(self, *_settings: Any, **_named: Any) -> None:
        """Refuse what `transformers.Trainer` calls when it is set to `gradient_checkpointing`."""
        what = "Gradient checkpointing does not work with elastic widths."
        raise UserError(what, hint="Leave out --gradient_checkpointing.")

    activation_checkpointing_enable = gradient_checkpointing_enable
    """Its name from transformers 5.23 on."""

    def _lookup(self, shape: str) -> tuple[Any, dict[str, Slice]]:
        if shape == FULL:
            return self.model, {}
        if shape not in self._smaller:
            raise UserError(f"There is no shape '{shape}'.", hint=nearest(shape, [FULL, *self.shapes]))
        return self._smaller[shape]

    def _run(self, bones: Any, lent: Mapping[str, Slice], inputs: Mapping[str, Any]) -> Any:
        if bones is self.model:
            return bones(**inputs)
        if bones.training != self.model.training:
            bones.train(self.model.training)
        full = dict(self.model.named_parameters(remove_duplicate=False))
        full.update(self.model.named_buffers(remove_duplicate=False))
        tensors = {name: part.of(full[part.source]) for name, part in lent.items()}
        return torch.func.functional_call(bones, tensors, kwargs=dict(inputs))
