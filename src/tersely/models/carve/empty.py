"""Linear layers without heads or neurons: what is left of a sublayer that was pruned whole is its output's bias."""

from __future__ import annotations

from typing import final

import torch
from torch import nn


@final
class NoOutputs(nn.Linear):  # type: ignore[misc]  # torch is Any to mypy
    """A linear layer that lost all its units: its weight is [0, in]; what it gives is zeros that nobody reads.

    `stand_in`: how many zeros, so that the code of the layer around it, which splits them by head, runs on.
    """

    stand_in: int = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Zeros [..., stand_in]. An exported graph has nothing of it: only the shape of what follows is read."""
        return x.new_zeros((*x.shape[:-1], self.stand_in))


@final
class NoInputs(nn.Linear):  # type: ignore[misc]
    """An output projection that lost all its units: its weight is [out, 0]; what it gives is its bias."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The bias [..., out], or zeros where there is none; the values of `x` do not matter."""
        if self.bias is None:
            return x.new_zeros((*x.shape[:-1], self.out_features))
        return self.bias.expand(*x.shape[:-1], self.out_features)


def empty(linear: nn.Linear, stand_in: int | None) -> None:
    """Let a layer whose parameters hold nothing run, in place; without `stand_in` it is one that has no inputs."""
    linear.__class__ = NoInputs if stand_in is None else NoOutputs
    if stand_in is not None:
        linear.stand_in = stand_in
