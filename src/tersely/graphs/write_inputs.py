"""What matmuls read: each value smoothed and quantized once, however many of them read it (q, k and v)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from ..quant_map import Floats, Range
from .rewrite import Rewrite, node

Written = TypeVar("Written")

Quantize = Callable[[str, "Range | None"], "tuple[Written, list[Any]]"]
"""A value's name and range to what the matmuls read in its place, and the nodes that give that."""


class Inputs(Generic[Written]):
    """Remembers what became of each value; `quantize` is the graph writer's own way to make it integer."""

    def __init__(self, rewrite: Rewrite, quantize: Quantize[Written]) -> None:
        self._rewrite, self._quantize = rewrite, quantize
        self._made: dict[tuple[str, Range | None, bytes], Written] = {}

    def of(self, value: str, range_: Range | None, smooth: Floats | None = None) -> Written:
        """What a matmul reads in the place of a value: a second one with the same range and smoothing, the same."""
        key = (value, range_, b"" if smooth is None else smooth.tobytes())
        if key not in self._made:
            name, nodes = value, []
            if smooth is not None:
                name = self._rewrite.new(f"{value}.smoothed")
                factor = self._rewrite.constant(f"{name}.factor", (1 / smooth).astype(np.float32))
                nodes = [node("Mul", [value, factor], name)]
            self._made[key], quantizers = self._quantize(name, range_)
            self._rewrite.after(value, [*nodes, *quantizers])
        return self._made[key]
