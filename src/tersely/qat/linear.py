"""`FakeQuantLinear`: a linear layer that computes in floats what its INT8 self will give."""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..quant_map import Floats, Integers, QuantLayer
from .input_quantizer import InputQuantizer
from .rounding import RoundWeight, abs_max_scales, usable, weight_integers


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


def plain_linear(layer: FakeQuantLinear) -> nn.Linear:
    """An ordinary layer on the same parameters."""
    linear = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
    linear.weight, linear.bias = layer.weight, layer.bias
    return linear


def _array(tensor: torch.Tensor) -> Floats:
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), np.float32)
