"""`FakeQuantized`: a model whose linear layers compute in floats what their INT8 selves will, as a `QuantMap` says."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from typing import Any, final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..errors import UserError
from ..models.carve import twin
from ..models.families import Family
from ..quant_map import Floats, Integers, QuantLayer, QuantMap, Range
from ..quantize.targets import Targets
from ..training.losses import mask_of
from ..training.teacher import record_states
from .input_quantizer import LARGEST_WINDOW, InputQuantizer, Sight
from .options import QatSettings
from .rounding import RoundWeight, abs_max_scales, usable, weight_integers


@final
class FakeQuantized(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """A copy of a model in which every layer that a `QuantMap` makes integer is a `FakeQuantLinear`.

    Weights that share an input (q, k, v), or inputs that share a weight (ALBERT), have one quantizer, as
    `Targets.groups` says. A forward looks at its inputs (`fold` takes that in); the model inside, `model`, does not.
    `first_only`: groups of which the graph computes the first position alone: only that is looked at.
    """

    def __init__(
        self,
        model: nn.Module,
        start: QuantMap,
        targets: Targets,
        settings: QatSettings,
        *,
        first_only: Collection[str] = (),
        window: int = LARGEST_WINDOW,
        family: Family | None = None,
    ) -> None:
        super().__init__()
        self.model = twin(model, torch.clone)
        self.family, self.start = family, start
        self._sight = Sight()
        self.quantizers = nn.ModuleList()
        pair_safe = settings.cpu_classes == "all"
        self._names: dict[str, str] = {}
        linears = _linears(self.model)
        for group in targets.groups:
            layers = {name: start.layers[name] for name in group.reads if name in start.layers}
            if not layers:
                continue
            first = next(iter(layers.values()))
            quantizer = InputQuantizer(
                first.range or Range(0, 0),
                settings,
                self._sight,
                smooth=first.smooth,
                first_only=group.name in first_only,
                window=window,
            )
            self.quantizers.append(quantizer)
            for name, layer in layers.items():
                place = linears.get(name)
                if place is None:
                    what = f"The weight '{name}' belongs to no linear layer of the torch model: qat cannot train it."
                    raise UserError(what, hint=f"Leave it float with --skip_layers {name}, or use ptq.")
                old = self.model.get_submodule(place)
                _put(self.model, place, FakeQuantLinear(old, quantizer, layer, pair_safe=pair_safe))
                self._names[name] = place

    @property
    def config(self) -> Any:
        """The model's."""
        return self.model.config

    def forward(self, *, states: bool = False, **inputs: Any) -> Any:
        """What the model gives and, with `states`, what `record_states` records; inputs are looked at."""
        self._sight.on, self._sight.mask = True, mask_of(inputs).bool()
        recording: Any = record_states(self.model, self.family) if states and self.family else nullcontext([])
        try:
            with recording as recorded:
                return self.model(**inputs), tuple(recorded)
        finally:
            self._sight.on, self._sight.mask = False, None

    def fold(self, world_size: int = 1) -> None:
        """Take in what the forwards since the last call looked at, on all processes: the end of a step's batch."""
        reach = torch.stack([quantizer.take_seen() for quantizer in self.quantizers])
        if world_size > 1:
            torch.distributed.all_reduce(reach, op=torch.distributed.ReduceOp.MAX)
        for quantizer, sides in zip(self.quantizers, reach, strict=True):
            if sides[0] >= 0:
                quantizer.fold(sides)

    def clips(self) -> list[nn.Parameter]:
        """The shares that PACT learns; none where it is off."""
        return [quantizer.share for quantizer in self.quantizers if quantizer.share is not None]

    def quant_map(self) -> QuantMap:
        """What the exported graph is to compute: exactly what a forward rounds to now."""
        layers = {name: self.model.get_submodule(place).quantized() for name, place in self._names.items()}
        return QuantMap(layers, {}, {}, self.start.left_float, self.start.cpu_classes)

    def plain(self) -> Any:
        """The model with ordinary layers and a copy of the weights as they are now, in floats."""
        copied = twin(self.model, torch.clone)
        for place in self._names.values():
            _put(copied, place, copied.get_submodule(place).plain())
        return copied.eval()


@final
class FakeQuantLinear(nn.Linear):  # type: ignore[misc]  # torch is Any to mypy
    """The parameters of an `nn.Linear`, itself one to whoever looks, rounded anew in each forward.

    Scales follow the weight: `finer` times those that clip nothing. `finer` is PTQ's choice, kept: PTQ clips a few
    weights where a finer step gains more. The quantizer is not a part of this module, as several share it.
    """

    def __init__(self, linear: nn.Linear, quantizer: InputQuantizer, start: QuantLayer, *, pair_safe: bool) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.pair_safe, self.per_channel = pair_safe, start.scales.size > 1
        self._quantizer = (quantizer,)  # in a tuple, out of reach of nn.Module
        self.register_buffer("smooth", None if start.smooth is None else torch.from_numpy(start.smooth.copy()))
        held = abs_max_scales(self._smoothed().detach(), self.per_channel, pair_safe)
        self.register_buffer("finer", torch.from_numpy(start.scales.reshape(-1, 1).copy()).to(held.device) / held)

    @property
    def quantizer(self) -> InputQuantizer:
        """What rounds its input."""
        return self._quantizer[0]

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        weight = self._smoothed()
        rounded = RoundWeight.apply(weight, self._scales(weight), self.pair_safe)
        output: torch.Tensor = functional.linear(self.quantizer(input), rounded, self.bias)
        return output.to(input.dtype)

    def quantized(self) -> QuantLayer:
        """The integers and scales of a forward as the weight is now, and the range of its input."""
        with torch.no_grad():
            weight = self._smoothed()
            scales = self._scales(weight)
            integers: Integers = _array(weight_integers(weight, scales, self.pair_safe).T).astype(np.int8)
        smooth: Floats | None = None if self.smooth is None else _array(self.smooth)
        return QuantLayer(self.quantizer.range(), integers, _array(scales.flatten()), smooth)

    def _smoothed(self) -> torch.Tensor:
        weight: torch.Tensor = self.weight.float()
        return weight if self.smooth is None else weight * self.smooth

    def _scales(self, weight: torch.Tensor) -> torch.Tensor:
        return usable(self.finer * abs_max_scales(weight.detach(), self.per_channel, self.pair_safe))

    def plain(self) -> nn.Linear:
        """An ordinary layer on the same parameters."""
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        linear.weight, linear.bias = self.weight, self.bias
        return linear


def _linears(model: nn.Module) -> dict[str, str]:
    """The place of each linear layer by every name of its weight; a layer that several places share has one."""
    first: dict[int, str] = {}
    weights: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        weights.setdefault(id(parameter), []).append(name)
    found: dict[str, str] = {}
    for place, module in model.named_modules():
        if isinstance(module, nn.Linear):
            if first.setdefault(id(module.weight), place) != place:
                what = f"The layers '{first[id(module.weight)]}' and '{place}' share a weight: qat cannot train them."
                raise UserError(what, hint="Use ptq.")
            found |= dict.fromkeys(weights[id(module.weight)], place)
    return found


def _put(model: nn.Module, place: str, module: nn.Module) -> None:
    """Set a part of a model wherever that part is used."""
    old = model.get_submodule(place)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if child is old:
                setattr(parent, name, module)


def _array(tensor: torch.Tensor) -> Floats:
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), np.float32)
