"""What of a graph is to become integer, and, by reason, what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from onnx import numpy_helper

from ..graphs.layers import Kind, LinearLayer, Product, find_layers, find_products, find_tables
from ..graphs.wiring import initializers
from ..quant_map import Floats
from .skip import skipped

# A layer with fewer outputs (a classifier, a pair of pointers) takes no time, and its error is the answer's error.
FEWEST_OUTPUTS = 64


@dataclass(frozen=True)
class Group:
    """Weights that take one range, as they share an input (q, k, v) or a weight is used in several places (ALBERT).

    `values` change with the rows; `constants` do not (DeBERTa's relative positions, which every layer reads: they do
    not make one group of all layers). `reads`: by weight which of both it is fed, in the order of the graph.
    """

    values: tuple[str, ...]
    constants: tuple[str, ...]
    reads: dict[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """The first value, which no other group has."""
        return self.values[0]


@dataclass(frozen=True)
class Targets:
    """Layers and products to quantize; `left_float` by weight with its reason; the weights and biases by name."""

    layers: tuple[LinearLayer, ...]
    products: tuple[Product, ...]
    left_float: dict[str, str]
    weights: dict[str, Floats] = field(repr=False)
    biases: dict[str, Floats] = field(repr=False)

    @property
    def inputs(self) -> dict[str, int | None]:
        """What the layers read, with the axis of the positions, from the end; None for what never changes."""
        return {layer.input: None if layer.constant_input else -2 for layer in self.layers}

    @property
    def sides(self) -> dict[str, int]:
        """What the products read, likewise; the keys of QKᵀ lie on their side."""
        lefts = {product.left: -2 for product in self.products}
        return lefts | {product.right: -1 if product.kind == "scores" else -2 for product in self.products}

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The layers by what they must have in common, in the order of the graph."""
        reads: dict[str, list[str]] = {}
        for layer in self.layers:
            reads.setdefault(layer.name, []).append(layer.input)
        constants = {layer.input for layer in self.layers if layer.constant_input}
        joined: dict[str, tuple[str, ...]] = {}
        for inputs in reads.values():
            values = [value for name in inputs if name not in constants for value in joined.get(name, (name,))]
            joined |= dict.fromkeys(values, tuple(dict.fromkeys(values)))
        members: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {}
        for name, inputs in reads.items():
            varying = next(value for value in inputs if value not in constants)
            members.setdefault(joined[varying], {})[name] = tuple(dict.fromkeys(inputs))
        groups = []
        for together, found in members.items():
            fixed = dict.fromkeys(value for read in found.values() for value in read if value in constants)
            groups.append(Group(together, tuple(fixed), found))
        return tuple(groups)


def find_targets(proto: Any, *, skip_layers: Sequence[str] = (), attention: Sequence[Kind] = ()) -> Targets:
    """Find what to quantize; a pattern of `skip_layers` that names neither layer nor table is refused.

    `attention`: the kinds of products to take.
    """
    uses: dict[str, list[LinearLayer]] = {}
    for layer in find_layers(proto):
        uses.setdefault(layer.name, []).append(layer)
    skip = skipped(skip_layers, [*uses, *(table.name for table in find_tables(proto))])
    tensors = initializers(proto.graph)
    left_float: dict[str, str] = {}
    weights, biases = {}, {}
    for name, layers in uses.items():
        weights[name] = np.asarray(numpy_helper.to_array(tensors[name]), np.float32)
        bias = layers[0].bias
        if bias is not None:
            biases[name] = np.asarray(numpy_helper.to_array(tensors[bias]), np.float32)
        if name in skip:
            left_float[name] = "skipped"
        elif layers[0].shape[1] < FEWEST_OUTPUTS:
            left_float[name] = "small"
        elif all(layer.constant_input for layer in layers):
            left_float[name] = "constant"
        elif not np.isfinite(weights[name]).all():
            left_float[name] = "not_finite"
    chosen = tuple(layer for layers in uses.values() for layer in layers if layer.name not in left_float)
    products = find_products(proto)
    left_float |= {product.name: "not_asked" for product in products if product.kind not in attention}
    taken = tuple(product for product in products if product.kind in attention)
    return Targets(chosen, taken, left_float, weights, biases)
