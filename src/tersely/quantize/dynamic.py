"""INT8 weights with ranges that are taken from each batch at run time: no rows are needed."""

from __future__ import annotations

from ..engines.cpu import EXACT_CLASSES
from ..quant_map import QuantLayer, QuantMap
from .targets import Targets
from .weights import quantize_weight


def dynamic(targets: Targets, weight_quantize_type: str = "channel_wise_abs_max", cpu_classes: str = "all") -> QuantMap:
    """A `QuantMap` whose layers have no range."""
    layers = {}
    for layer in targets.layers:
        if layer.name not in layers:
            weight = quantize_weight(targets.weights[layer.name], weight_quantize_type, cpu_classes=cpu_classes)
            layers[layer.name] = QuantLayer(None, weight.integers, weight.scales)
    left_float = targets.left_float | {product.name: "not_asked" for product in targets.products}
    return QuantMap(layers, left_float=left_float, cpu_classes=valid_on(cpu_classes))


def valid_on(cpu_classes: str) -> tuple[str, ...]:
    """The classes on which integers made for `--cpu_classes` are right."""
    return ("all",) if cpu_classes == "all" else EXACT_CLASSES
