"""Rounding with straight-through gradients: inputs to the codes of a range, weights to integers."""

from __future__ import annotations

from typing import Any

import torch

from ..quantize.weights import LARGEST, PAIR_LIMIT

_TINY = torch.finfo(torch.float32).tiny


class RoundInput(torch.autograd.Function):  # type: ignore[misc]
    """Inputs to the 256 codes of a step and zero point and back, as engines with u8 inputs do.

    Gradients pass where the input is inside of the codes. `clip` (a scalar, or None) is PACT's α (Choi et al. 2018,
    eq. 3, two-sided): its gradient is the sum over what lies beyond ±α, of the sign's side.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, step: torch.Tensor, zero: torch.Tensor, clip: torch.Tensor | None
    ) -> torch.Tensor:
        """X and what it is given back as have any shape; the others are scalars."""
        codes = torch.round(x / step)
        inside = (codes >= -zero) & (codes <= 255 - zero)
        beyond = None if clip is None else (x >= clip).to(torch.int8) - (x <= -clip).to(torch.int8)
        ctx.save_for_backward(inside, beyond)
        return torch.clamp(codes, -zero, 255 - zero).mul_(step)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """To the input and to the clip."""
        inside, beyond = ctx.saved_tensors
        to_clip = None if beyond is None else (gradient * beyond).sum()
        return gradient * inside, None, None, to_clip


class RoundWeight(torch.autograd.Function):  # type: ignore[misc]
    """A weight [out, in] to integers times scales ([out, 1] or [1, 1]); gradients pass where nothing is clipped."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, scales: torch.Tensor, pair_safe: bool) -> torch.Tensor:
        """Give what the integers stand for."""
        ctx.save_for_backward(weight.abs() <= (LARGEST + 0.5) * scales)
        return weight_integers(weight, scales, pair_safe).mul_(scales)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """To the weight alone: its scales follow it."""
        (inside,) = ctx.saved_tensors
        return gradient * inside, None, None


def abs_max_scales(weight: torch.Tensor, per_channel: bool, pair_safe: bool) -> torch.Tensor:
    """`quantize.weights.abs_max_scales` of a weight [out, in], bit for bit: [out, 1], or [1, 1]."""
    steps = weight.abs().amax(dim=1, keepdim=True) / LARGEST
    if pair_safe and weight.shape[1] > 1:
        first, second = _pairs(weight)
        steps = torch.maximum(steps, (first + second).abs().amax(dim=1, keepdim=True) / PAIR_LIMIT)
    if not per_channel:
        steps = steps.amax(dim=0, keepdim=True)
    return usable(steps)


def usable(scales: torch.Tensor) -> torch.Tensor:
    """Steps that can be divided by; a channel of zeros has step 1."""
    return torch.where(scales > 0, scales.clamp(min=_TINY), torch.ones_like(scales))


def weight_integers(weight: torch.Tensor, scales: torch.Tensor, pair_safe: bool) -> torch.Tensor:
    """`quantize.weights.round_weight` of a weight [out, in], bit for bit, as floats."""
    real = weight / scales
    integers = torch.round(real).clamp_(-LARGEST, LARGEST)
    if pair_safe:
        _settle(real, integers)
    return integers


def _settle(real: torch.Tensor, integers: torch.Tensor) -> None:
    """Bring pairs that pass 128 down to it in place, both giving the same."""
    first, second = _pairs(integers)
    sums = first + second
    row, column = torch.nonzero(sums.abs() > PAIR_LIMIT, as_tuple=True)
    if len(row) == 0:
        return
    sign = sums[row, column].sign()
    left, right = (part[row, column].abs() for part in _pairs(real))
    settled = torch.round(left - (left + right - PAIR_LIMIT) * 0.5).clamp_(PAIR_LIMIT - LARGEST, LARGEST)
    first[row, column] = sign * settled
    second[row, column] = sign * (PAIR_LIMIT - settled)


def _pairs(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of columns 0, 2, 4, … and of their neighbours; an odd last column is in neither."""
    paired = weight.shape[1] // 2 * 2
    return weight[:, 0:paired:2], weight[:, 1:paired:2]
