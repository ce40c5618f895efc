"""What is learnt of a layer once its ranges stand: the rounding of its weights, the shift of its bias.

Both need no more than moments of the layers' inputs and of the same inputs quantized, which are streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..progress import SILENT, Progress
from ..quant_map import Floats, QuantLayer, QuantMap, Range
from ..tasks import Feature
from .adaround import better_rounding
from .observe import Axes, watch
from .samples import Samples
from .targets import Targets
from .weights import QuantWeight, dequantize

if TYPE_CHECKING:
    from .ptq import Key, PtqSettings

# Matrices of moments kept at a time. A base model's would take 3 GB together: then there are several passes.
MATRIX_BYTES = 512 * 2**20


def refine(
    proto: Any,
    targets: Targets,
    samples: Samples,
    quant_maps: Mapping[Key, QuantMap],
    settings: PtqSettings,
    *,
    progress: Progress = SILENT,
) -> dict[Key, QuantMap]:
    """Learn the rounding and correct the biases of all candidates, each layer judged on rows held out.

    One pass serves all candidates (large models with AdaRound take several, see `stream_moments`), and a layer that
    has the same range in several of them is refined once. The candidates must have weights and smoothing in common.
    """
    feeds = _feeds(targets, quant_maps)
    known = {name: layer for quant_map in quant_maps.values() for name, layer in quant_map.layers.items()}
    biases: dict[str, set[str | None]] = {}
    for target in targets.layers:
        biases.setdefault(target.name, set()).add(target.bias)
    refined: dict[tuple[str, Range | None], QuantLayer] = {}
    sets = (samples.features, samples.judging or samples.features)
    for portion in stream_moments(
        proto, list(feeds), sets, samples.pad_id, matrices=settings.adaround, progress=progress
    ):
        with progress.track("refine", sum(len(feeds[feed]) for feed in portion)) as advance:
            for feed, (learnt, held_out) in portion.items():
                for name in feeds[feed]:
                    layer = replace(known[name], range=feed.range)
                    weight = targets.weights[name]
                    weight = weight if layer.smooth is None else weight * layer.smooth[:, None]
                    quantized = QuantWeight(layer.integers, layer.scales)
                    if settings.adaround:
                        quantized = better_rounding(
                            weight, quantized, learnt, held_out, cpu_classes=settings.cpu_classes
                        )
                        layer = replace(layer, integers=quantized.integers)
                    # A `QuantLayer` has but one bias to put in the place of all that its weight is used with.
                    if settings.bias_correction and len(biases[name]) == 1:
                        bias = _better_bias(targets.biases.get(name), weight, quantized, learnt, held_out)
                        layer = replace(layer, bias=bias)
                    refined[name, feed.range] = layer
                    advance(1, name)
    return {
        key: replace(quant_map, layers={name: refined[name, old.range] for name, old in quant_map.layers.items()})
        for key, quant_map in quant_maps.items()
    }


def _feeds(targets: Targets, quant_maps: Mapping[Key, QuantMap]) -> dict[Feed, list[str]]:
    """What is fed to the weights, for every range that some candidate gives it, and the weights that it is fed to."""
    feeds: dict[Feed, list[str]] = {}
    for group in targets.groups:
        held = [
            quant_map.layers[name]
            for quant_map in quant_maps.values()
            for name in group.reads
            if name in quant_map.layers
        ]
        for inputs in dict.fromkeys(group.reads.values()):
            values = {value: targets.inputs[value] for value in inputs}
            names = [name for name, read in group.reads.items() if read == inputs]
            for layer in {layer.range: layer for layer in held}.values():
                if layer.range is not None:
                    feeds[Feed(values, layer.range, layer.smooth, len(layer.integers))] = names
    return feeds


def _better_bias(
    bias: Floats | None, weight: Floats, quantized: QuantWeight, learnt: InputMoments, held_out: InputMoments
) -> Floats | None:
    """The corrected bias, if the mean error on the rows held out is smaller for it; None: the graph's own stays."""
    corrected, ideal = (
        corrected_bias(bias, weight, quantized, moments["mean"], moments["mean_quantized"])
        for moments in (learnt, held_out)
    )
    before = np.zeros_like(ideal) if bias is None else bias
    return corrected if np.abs(ideal - corrected).sum() < np.abs(ideal - before).sum() else None


def corrected_bias(
    bias: Floats | None, weight: Floats, quantized: QuantWeight, mean_input: Floats, mean_quantized_input: Floats
) -> Floats:
    """The bias [out] with which the mean output equals the float layer's: bias + E[x]·W - E[x̂]·Ŵ.

    `mean_input` and `mean_quantized_input` [in] are means over the same tokens. None as a bias counts as zeros.

    >>> rounded = QuantWeight(np.array([[1]], np.int8), np.array([1.0], np.float32))
    >>> corrected_bias(None, np.array([[1.5]], np.float32), rounded, np.ones(1, np.float32), np.ones(1, np.float32))
    array([0.5], dtype=float32)
    """
    # float64: the two products nearly cancel.
    wanted = mean_input.astype(np.float64) @ weight.astype(np.float64)
    got = mean_quantized_input.astype(np.float64) @ dequantize(quantized).astype(np.float64)
    return np.asarray((0 if bias is None else bias) + wanted - got, np.float32)


@dataclass(frozen=True, eq=False)
class Feed:
    """What weights [channels, out] are fed: values with the axis of their positions, their range and divisor."""

    values: Axes
    range: Range
    divisor: Floats | None
    channels: int


@dataclass
class InputMoments:
    """Means over tokens of x, x̂ (x divided by its smoothing vector; x̂ its quantized self) and of their products.

    By name: `mean`, `mean_quantized` [in]; `plain`, `cross`, `second` [in, in] of xᵀx, x̂ᵀx and x̂ᵀx̂, where asked for.
    """

    tokens: int = 0
    _sums: dict[str, NDArray[Any]] = field(default_factory=dict)

    def add(self, x: Floats, quantized: Floats, matrices: bool) -> None:
        """Fold in tokens [tokens, in]."""
        self.tokens += len(x)
        sums = {"mean": x.sum(axis=0, dtype=np.float64), "mean_quantized": quantized.sum(axis=0, dtype=np.float64)}
        if matrices:
            sums |= {"plain": x.T @ x, "cross": quantized.T @ x, "second": quantized.T @ quantized}
        for name, summand in sums.items():
            if name in self._sums:
                self._sums[name] += summand
            else:
                self._sums[name] = summand

    def __getitem__(self, name: str) -> Floats:
        return np.asarray(self._sums[name] / max(self.tokens, 1), np.float32)


def stream_moments(
    proto: Any,
    feeds: Sequence[Feed],
    sets: Sequence[Sequence[Feature]],
    pad_id: int,
    *,
    matrices: bool,
    progress: Progress = SILENT,
) -> Iterator[dict[Feed, list[InputMoments]]]:
    """Give the moments of each feed over each set of features; memory does not grow with the rows.

    They come in portions, a pass each, where the matrices of all would not fit at once.
    """
    for portion in _portions(feeds, len(sets), matrices):
        found = {feed: [InputMoments() for _ in sets] for feed in portion}
        values = {name: axis for feed in portion for name, axis in feed.values.items()}
        for place, features in enumerate(sets):
            for seen in watch(proto, values, features, pad_id, title="moments", progress=progress):
                for feed, moments in found.items():
                    for name in (name for name in feed.values if name in seen):
                        x = seen[name] if feed.divisor is None else seen[name] / feed.divisor
                        moments[place].add(x, feed.range.fake_quantize(x), matrices)
        yield found


def _portions(feeds: Sequence[Feed], sets: int, matrices: bool) -> Iterator[list[Feed]]:
    portion: list[Feed] = []
    held = 0
    for feed in feeds:
        cost = sets * 3 * 4 * feed.channels**2 if matrices else 0
        if portion and held + cost > MATRIX_BYTES:
            yield portion
            portion, held = [], 0
        portion.append(feed)
        held += cost
    if portion:
        yield portion
