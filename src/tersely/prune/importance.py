"""How much the loss depends on each head and neuron: first order, one mask per sample (SPEC 5.1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from ..engines.torch import as_tuple, output_names
from ..errors import UserError
from ..models.carve import Places, locate, twin
from ..models.carve.places import HEADS, NEURONS
from ..models.families import Family, find

Loss = Callable[[Any, Mapping[str, Any]], torch.Tensor]
"""From what the model gave and the batch to the loss, summed over the batch's samples."""

LABELS = ("labels", "label", "label_ids", "start_positions", "end_positions")
"""What a batch holds for the loss, not for the model."""


@dataclass(frozen=True)
class Importance:
    """Σ over samples of |∂L/∂mask|, by layer (ALBERT, whose layers are one: one): heads [heads], neurons [neurons]."""

    heads: tuple[NDArray[np.float64], ...]
    neurons: tuple[NDArray[np.float64], ...]
    samples: int


def importance(
    model: nn.Module, batches: Iterable[Mapping[str, Any]], loss: Loss, family: Family | None = None
) -> Importance:
    """Find the importance of every head and neuron, on a stream of batches (tensors by name; labels stay outside).

    A mask of ones for each sample multiplies each head's context before the output projection and each neuron's
    activation; the loss is summed over samples, so that batch size and padding do not matter. The model, in eval
    mode here, is untouched: weights are shared with a copy, gradients go to the masks alone. One forward and one
    backward pass per batch.
    """
    family = family or find(model)
    copied = twin(model, lambda tensor: tensor).eval().requires_grad_(False)
    device = next((parameter.device for parameter in copied.parameters()), torch.device("cpu"))
    takes = set(inspect.signature(copied.forward).parameters)
    places = locate(copied, family)
    names = [(unit, block) for unit in (HEADS, NEURONS) for block in range(len(places.blocks))]
    sums = {name: np.zeros(places.count(*name)) for name in names}
    samples = 0
    for batch in batches:
        given = {name: _to(value, device) for name, value in batch.items()}
        feed = {name: value for name, value in given.items() if name not in LABELS}
        if not takes.isdisjoint(feed):  # a wrapper that takes whatever comes gets everything
            feed = {name: value for name, value in feed.items() if name in takes}
        with torch.enable_grad(), _masked(copied, places) as masks:
            value = loss(copied(**feed), given)
            _check(value)
            slopes = torch.autograd.grad(value, [masks[name] for name in names])
        for name, slope in zip(names, slopes, strict=True):
            sums[name] += slope.double().abs().sum(0).cpu().numpy()
        samples += len(slopes[0])
    if samples == 0:
        raise UserError("There are no rows to find the importance of heads and neurons on.")
    parts = {unit: tuple(sums[one] for one in names if one[0] == unit) for unit in (HEADS, NEURONS)}
    return Importance(parts[HEADS], parts[NEURONS], samples)


def own_predictions(model: nn.Module) -> Loss:
    """The loss for rows without labels: the model's own answers as targets.

    They are hard answers (the likeliest label, tag or position): against its own probabilities, a model's loss has no
    slope. For the same reason a regression's loss is its output.
    """
    names = output_names(model)
    multi_label = getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"

    def loss(output: Any, batch: Mapping[str, Any]) -> torch.Tensor:
        outputs, mask = as_tuple(output, names), batch.get("attention_mask")
        if len(outputs) != len(names):
            what = f"The model gives {len(outputs)} outputs, whose targets cannot be told from its own predictions."
            raise UserError(what, hint="Give labelled rows and a criterion.")
        if len(outputs) == 2:  # a question's start and end
            floor = torch.finfo(outputs[0].dtype).min
            ends = [end if mask is None else end.masked_fill(mask == 0, floor) for end in outputs]
            return _likeliest(ends[0]) + _likeliest(ends[1])
        (logits,) = outputs
        if multi_label:
            return functional.binary_cross_entropy_with_logits(logits, (logits > 0).to(logits.dtype), reduction="sum")
        if logits.ndim == 3:
            return _likeliest(logits.flatten(0, 1) if mask is None else logits[mask != 0])
        return logits.sum() if logits.shape[-1] == 1 else _likeliest(logits)

    return loss


def _likeliest(logits: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits, logits.detach().argmax(-1), reduction="sum")


@contextmanager
def _masked(model: nn.Module, places: Places) -> Iterator[dict[tuple[str, int], torch.Tensor]]:
    """Multiply what goes into output layers by masks of ones [samples, units], made as the first input comes."""
    masks: dict[tuple[str, int], torch.Tensor] = {}

    def hook(key: tuple[str, int]) -> Callable[[Any, Any], Any]:
        units = places.count(*key)

        def multiply(_module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
            (given,) = inputs
            if key not in masks:  # a layer that is called again (ALBERT, chunks of a sequence) keeps its mask
                masks[key] = given.new_ones(len(given), units).requires_grad_()
            shape = (len(given), *(1 for _ in given.shape[1:-1]), units, 1)
            return ((given.unflatten(-1, (units, -1)) * masks[key].view(shape)).flatten(-2),)

        return multiply

    handles = []
    try:
        for unit in (HEADS, NEURONS):
            for block, name in enumerate(places.outputs(unit)):
                handles.append(model.get_submodule(name).register_forward_pre_hook(hook((unit, block))))
        yield masks
    finally:
        for handle in handles:
            handle.remove()


def _check(value: Any) -> None:
    if not isinstance(value, torch.Tensor) or value.ndim != 0:
        shape = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise UserError(f"The loss must give one number, the sum over the samples of a batch. Got {shape}.")
    if not bool(torch.isfinite(value)):
        raise UserError(f"The loss is {value.item()} on the rows that find the importance of heads and neurons.")


def _to(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value
