"""The shape of an encoder: how many heads and neurons each layer has, and which layers there are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from ...errors import UserError, fill

VERSION = 2
"""Since version 2 a layer may have no heads or no neurons; version 1 is read too."""
CONFIG_KEY = "tersely_shape"
"""Where a pruned model's config.json holds its shape."""


@dataclass(frozen=True)
class Shape:
    """Heads and FFN neurons of each layer, first to last, and the layers of the full model that these come from.

    A layer with 0 heads has no attention, one with 0 neurons no FFN: what is left is the bias of its output.

    >>> Shape(heads=(8, 8), ffn=(2048, 1024), layers=(0, 3)).to_json()
    {'version': 2, 'heads': [8, 8], 'ffn': [2048, 1024], 'layers': [0, 3]}
    """

    heads: tuple[int, ...]
    ffn: tuple[int, ...]
    layers: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.heads) == len(self.ffn) == len(self.layers) > 0:
            lengths = f"{len(self.heads)} heads, {len(self.ffn)} ffn, {len(self.layers)} layers"
            raise UserError(f"A shape holds as many heads as ffn sizes as layers, one at least. Got {lengths}.")
        if min(*self.heads, *self.ffn) < 0:
            raise UserError(f"A layer cannot have fewer than 0 heads or neurons. Got {self.heads} and {self.ffn}.")
        if self.layers[0] < 0 or list(self.layers) != sorted(set(self.layers)):
            raise UserError(f"The layers of a shape must be numbers that rise. Got {self.layers}.")

    def to_json(self) -> dict[str, Any]:
        """As plain JSON with a version."""
        lists = {name: list(numbers) for name, numbers in asdict(self).items()}
        return {"version": VERSION, **lists}

    @classmethod
    def from_json(cls, content: Any, *, where: str | None = None) -> Shape:
        """Read what `to_json` gave; anything else is refused.

        >>> Shape.from_json({"version": 1, "heads": [4], "ffn": [64], "layers": [0]}).heads
        (4,)
        """
        version = content.get("version") if isinstance(content, Mapping) else None
        if version not in (1, VERSION) or isinstance(version, bool):
            hint = "Update tersely." if isinstance(version, int) else "Carve the model anew."
            what = f"The shape has format version {version}; this tersely reads versions 1 to {VERSION}."
            raise UserError(what, where=where, hint=hint)
        return fill(
            cls, {name: value for name, value in content.items() if name != "version"}, "The shape", where=where
        )

    @property
    def standing_alone(self) -> Shape:
        """The same sizes, of a model that has these layers and no others."""
        return Shape(self.heads, self.ffn, tuple(range(len(self.layers))))


def shape_for(full: Shape, width: Fraction | int = 1, depth: Fraction | int = 1) -> Shape:
    """The shape of a share of the heads and neurons, and of the layers.

    Heads: width times their number, half rounded up. FFN: the nearest multiple of 8, of 64 where there are 512
    neurons or more. Layers: depth times their number, dropped evenly; the first and the last stay.

    >>> shape_for(Shape((12,) * 4, (3072,) * 4, (0, 1, 2, 3)), Fraction(2, 3), Fraction(3, 4))
    Shape(heads=(8, 8, 8), ffn=(2048, 2048, 2048), layers=(0, 2, 3))
    """
    for name, share in (("width", width), ("depth", depth)):
        if not 0 < share <= 1:
            raise UserError(f"A {name} must be a fraction in (0, 1]. Got {share}.")
    kept = _spread(len(full.layers), depth)
    return Shape(
        heads=tuple(_heads(full.heads[layer], Fraction(width)) for layer in kept),
        ffn=tuple(_neurons(full.ffn[layer], Fraction(width)) for layer in kept),
        layers=kept,
    )


def _heads(count: int, width: Fraction) -> int:
    kept = _half_up(width * count)
    if kept < 1:
        what = f"The width {width} of {count} heads is less than half a head."
        raise UserError(what, hint=f"The smallest width for this model is {Fraction(1, 2 * count)}.")
    return kept


def neuron_step(count: int) -> int:
    """Neurons go in steps of 64, which kernels like, where there are 512 or more; else of 8."""
    return 64 if count >= 512 else 8


def _neurons(count: int, width: Fraction) -> int:
    step = neuron_step(count)
    return count if width == 1 else min(count, max(1, _half_up(width * count / step)) * step)


def _spread(count: int, depth: Fraction | int) -> tuple[int, ...]:
    kept = _half_up(Fraction(depth) * count)
    if kept < 1:
        what = f"The depth {depth} of {count} layers is less than half a layer."
        raise UserError(what, hint=f"The smallest depth for this model is {Fraction(1, 2 * count)}.")
    return tuple(_half_up(Fraction(i * (count - 1), max(kept - 1, 1))) for i in range(kept))


def _half_up(number: Fraction) -> int:
    return math.floor(number + Fraction(1, 2))
