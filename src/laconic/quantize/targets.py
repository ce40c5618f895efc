"""What of a graph is to become integer, and, by reason, what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from onnx import numpy_helper

from ..errors import UserError, nearest
from ..graphs.layers import Layer, Product, find_layers, find_products
from ..quant_map import Floats

# A layer with fewer outputs (a classifier, a pair of pointers) takes no time, and its error is the answer's error.
FEWEST_OUTPUTS = 64


@dataclass(frozen=True)
class Targets:
    """Layers and products to quantize; `left_float` by weight with its reason; the weights and biases by name."""

    layers: tuple[Layer, ...]
    products: tuple[Product, ...]
    left_float: dict[str, str]
    weights: dict[str, Floats] = field(repr=False)
    biases: dict[str, Floats] = field(repr=False)

    @property
    def inputs(self) -> dict[str, list[Layer]]:
        """The layers that read each value, in the order of the graph."""
        found: dict[str, list[Layer]] = {}
        for layer in self.layers:
            found.setdefault(layer.input, []).append(layer)
        return found


def find_targets(proto: Any, *, skip_layers: Sequence[str] = (), attention: bool = False) -> Targets:
    """Find what to quantize; a pattern of `skip_layers` that fits no layer is refused."""
    layers = find_layers(proto)
    names = list(dict.fromkeys(layer.name for layer in layers))
    for pattern in skip_layers:
        if not any(_fits(name, pattern) for name in names):
            hint = f"{nearest(pattern, names[:200])} Patterns take * and ?."
            raise UserError(f"No layer fits the pattern '{pattern}' (option '--skip_layers').", hint=hint)
    arrays = {tensor.name: tensor for tensor in proto.graph.initializer}
    left_float: dict[str, str] = {}
    weights, biases = {}, {}
    for layer in layers:
        weights[layer.name] = np.asarray(numpy_helper.to_array(arrays[layer.name]), np.float32)
        if layer.bias is not None:
            biases[layer.name] = np.asarray(numpy_helper.to_array(arrays[layer.bias]), np.float32)
        if any(_fits(layer.name, pattern) for pattern in skip_layers):
            left_float[layer.name] = "skipped"
        elif layer.shape[1] < FEWEST_OUTPUTS:
            left_float[layer.name] = "small"
        elif layer.constant_input:
            left_float[layer.name] = "constant"
        elif not np.isfinite(weights[layer.name]).all():
            left_float[layer.name] = "not_finite"
    chosen = tuple(layer for layer in layers if layer.name not in left_float)
    products = find_products(proto)
    if not attention:
        left_float |= {product.name: "not_asked" for product in products}
    return Targets(chosen, tuple(products) if attention else (), left_float, weights, biases)


def _fits(name: str, pattern: str) -> bool:
    """Fit a pattern to the whole name or, without the ending that every weight has, to the layer's."""
    return fnmatchcase(name, pattern) or fnmatchcase(name.removesuffix(".weight"), pattern)
