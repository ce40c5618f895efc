"""`InputQuantizer`: the range of one input, observed while training, and PACT's clip that is learnt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import nn

from ..errors import UserError
from ..quant_map import Floats, Range
from .options import AT_RUN_TIME, MOVING, WINDOW, QatSettings
from .rounding import RoundInput

LARGEST_WINDOW = 10_000
"""Steps that `range_abs_max` looks at, at most: PaddleNLP's own window."""
_NARROWEST = 1e-3
"""Of where it began, a clip stays above this share: α is above 0."""
_TINY = float(np.finfo(np.float32).tiny)


@dataclass
class Sight:
    """What all quantizers of a model look at: nothing, or the positions [rows, length] that are no padding."""

    on: bool = False
    mask: torch.Tensor | None = None


@final
class InputQuantizer(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """One input (q, k and v share theirs) divided by its smoothing vector and rounded to the codes of a range.

    Each side of 0 has a range of its own, so that GELU's output wastes no codes. Both begin as PTQ's. What a step's
    batch reaches, all its parts on all processes, is folded in once, at the step's end (`fold`):
    `moving_average_abs_max`: accum = r·accum + x, state = r·state + 1, range = accum / state, of each side's largest x;
    `range_abs_max`: the largest of the first `window` steps, frozen from there on;
    `abs_max`: nothing is kept; the range is that of each input as it comes, padding included, as an engine takes it.

    PACT: the clip α = `threshold` · `share` bounds what is observed and what is rounded; `share` is learnt and begins
    as 1. So the range in use is always the observed one within ±α, and that is what is exported.
    """

    def __init__(
        self,
        start: Range,
        settings: QatSettings,
        sight: Sight,
        *,
        smooth: Floats | None = None,
        first_only: bool = False,
        window: int = LARGEST_WINDOW,
    ) -> None:
        super().__init__()
        self.kind, self.rate, self.window = settings.activation_quantize_type, settings.moving_rate, window
        self.first_only = first_only
        self._sight = sight
        # Below 0 and above it: [2], in float64 as `Range` has them.
        self.register_buffer("accum", torch.tensor([-start.low, start.high], dtype=torch.float64))
        self.register_buffer("state", torch.ones((), dtype=torch.float64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("factor", None if smooth is None else torch.from_numpy((1 / smooth).astype(np.float32)))
        self.register_buffer("threshold", torch.tensor(max(-start.low, start.high, _TINY), dtype=torch.float32))
        self.share = nn.Parameter(torch.ones(())) if settings.clips else None
        self.seen: torch.Tensor | None = None

    @property
    def alpha(self) -> torch.Tensor | None:
        """PACT's clip as it is now; None where none is learnt."""
        return None if self.share is None else self.threshold * self.share.clamp(min=_NARROWEST)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to the same, smoothed and rounded."""
        x = x.float()
        if self.factor is not None:
            x = x * self.factor
        if self.kind == AT_RUN_TIME:
            sides = _reach(x.detach())
            step = (sides.sum() / 255).clamp(min=_TINY)
            return RoundInput.apply(x, step, torch.round((sides[0] / step).clamp(0, 255)), None)
        clip = None if self.share is None else self.threshold * _AtLeast.apply(self.share)
        if self._sight.on:
            self._look(x.detach())
        step, zero = self._codes()
        return RoundInput.apply(x, step, zero, clip)

    def range(self) -> Range | None:
        """What inputs are rounded to; None: settled at run time."""
        if self.kind == AT_RUN_TIME:
            return None
        below, above = self._sides().tolist()
        if not (math.isfinite(below) and math.isfinite(above)):
            what = "The inputs of a layer have become NaN or infinite while it was trained for INT8."
            raise UserError(what, hint="Training diverged; try a smaller --learning_rate.")
        return Range(-below, above)

    def fold(self, reach: torch.Tensor) -> None:
        """Take in how far a step's batch reached below and above 0 [2]."""
        if self.kind == MOVING:
            self.accum.mul_(self.rate).add_(reach)
            self.state.mul_(self.rate).add_(1)
        elif self.kind == WINDOW and int(self.steps) < self.window:
            torch.maximum(self.accum, reach, out=self.accum)
        self.steps += 1

    def take_seen(self) -> torch.Tensor:
        """How far inputs reached since this was last asked, below and above 0 [2]; forgets it. -1: nothing was seen."""
        seen, self.seen = self.seen, None
        return torch.full((2,), -1.0, dtype=torch.float64, device=self.accum.device) if seen is None else seen

    def _sides(self) -> torch.Tensor:
        """The range in use, below and above 0 [2]."""
        sides = self.accum / self.state
        alpha = self.alpha
        return sides if alpha is None else torch.minimum(sides, alpha.detach().double())

    def _codes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Step and zero point, by the arithmetic of `Range.unsigned`."""
        below, above = self._sides()
        step = ((above + below) / 255).clamp(min=_TINY).float()
        return step, torch.round((below / step.double()).clamp(0, 255)).float()

    def _look(self, x: torch.Tensor) -> None:
        """Remember how far the real positions reach, within the clip."""
        mask = self._sight.mask
        if self.first_only and x.ndim == 3:
            x = x[:, 0]
        elif mask is not None and x.ndim > 2 and x.shape[:2] == mask.shape:
            x = x[mask]
        elif mask is not None and x.ndim == 2 and len(x) == mask.numel():
            x = x[mask.flatten()]
        if x.numel() == 0:
            return
        reach = _reach(x).double()
        alpha = self.alpha
        if alpha is not None:
            reach = torch.minimum(reach, alpha.detach().double())
        self.seen = reach if self.seen is None else torch.maximum(self.seen, reach)


class _AtLeast(torch.autograd.Function):  # type: ignore[misc]
    """A share kept above 0; its gradient passes all the same, so that it can come back."""

    @staticmethod
    def forward(_ctx: object, share: torch.Tensor) -> torch.Tensor:
        """The share or its least."""
        return share.clamp(min=_NARROWEST)

    @staticmethod
    def backward(_ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        """Straight through."""
        return gradient


def _reach(x: torch.Tensor) -> torch.Tensor:
    """How far values reach below and above 0 [2]."""
    low, high = torch.aminmax(x)
    return torch.stack([-low, high]).clamp(min=0)
