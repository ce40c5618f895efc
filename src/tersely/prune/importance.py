"""How much the loss depends on each head and neuron; a model with the most important first, so any width is a slice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from ..engines.torch import as_tuple, input_names, output_names
from ..errors import UserError
from ..models.carve import Places, carve, locate, shape_of, twin
from ..models.carve.places import HEADS, NEURONS, Cut, tensors
from ..models.families import Family, find
from ..models.folder import ModelFolder
from ..progress import SILENT, Progress
from ..training.batches import Collator, FeatureDataset
from ..training.losses import ONE, kind_of, label_loss
from .widths import PruneSettings

BATCH = 16
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
        moved = {name: v.to(device) if isinstance(v, torch.Tensor) else v for name, v in batch.items()}
        feed = {name: value for name, value in moved.items() if name not in LABELS}
        if not takes.isdisjoint(feed):  # a wrapper that takes whatever comes gets everything
            feed = {name: value for name, value in feed.items() if name in takes}
        with torch.enable_grad(), masked(copied, places) as masks:
            value = loss(copied(**feed), moved)
            _check(value)
            slopes = torch.autograd.grad(value, [masks[name] for name in names])
        for name, slope in zip(names, slopes, strict=True):
            sums[name] += slope.double().abs().sum(0).cpu().numpy()
        samples += len(slopes[0])
    if samples == 0:
        raise UserError("There are no rows to find the importance of heads and neurons on.")
    parts = {unit: tuple(sums[name] for name in names if name[0] == unit) for unit in (HEADS, NEURONS)}
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
            what = f"The model gives {len(outputs)} outputs, whose targets cannot be read from its own predictions."
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


def prune_only(
    folder: ModelFolder,
    train_examples: Sequence[Any],
    settings: PruneSettings,
    *,
    seed: int = 42,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Carved models by name, not trained: importance (unless `settings.reorder` is False), order, slices."""
    family = find(folder.config)
    model = folder.load()
    ordered = ordered_model(model, family, folder, train_examples, settings, seed=seed, progress=progress)
    targets, _ = settings.targets(shape_of(model, family))
    return {target.name: carve(ordered, family, target.shape) for target in targets}


def ordered_model(
    model: nn.Module,
    family: Family,
    folder: ModelFolder,
    examples: Sequence[Any],
    settings: PruneSettings,
    *,
    seed: int,
    progress: Progress = SILENT,
) -> Any:
    """A copy of the model with heads and neurons in the order of their importance on a seeded sample of the rows."""
    if not settings.reorder:
        return twin(model, torch.clone)
    by_labels = settings.importance == "labels"
    drawn = np.random.default_rng(seed).permutation(len(examples))[: settings.importance_rows]
    dataset = FeatureDataset(folder.task, [examples[i] for i in drawn], folder.encoder, labelled=by_labels)
    kind, names = kind_of(folder.task), output_names(model)

    def loss(output: Any, batch: Mapping[str, Any]) -> torch.Tensor:
        return label_loss(as_tuple(output, names), batch, kind, ONE, settings.criterion)

    with progress.track("importance", len(dataset)) as advance:

        def batches() -> Iterator[Mapping[str, Any]]:
            collate = Collator(folder.encoder, input_names(model))
            order = sorted(range(len(dataset)), key=lambda i: (-len(dataset.features[i]), i))  # little padding
            for first in range(0, len(order), BATCH):
                chosen = order[first : first + BATCH]
                yield collate([dataset[i] for i in chosen])
                advance(len(chosen))

        found = importance(model, batches(), loss if by_labels else own_predictions(model), family)
    return reorder(model, found, family)


def reorder(model: nn.Module, importance: Importance, family: Family | None = None) -> Any:
    """A copy of a model with heads and neurons of each layer in falling importance (equal ones stay in order).

    Where layers must keep the same heads (MPNet), the order is that of the sum over layers.
    """
    family = family or find(model)
    places = locate(model, family)
    orders = {HEADS: _orders(importance.heads, places, HEADS), NEURONS: _orders(importance.neurons, places, NEURONS)}
    copied = twin(model, torch.clone)
    weights = tensors(copied)
    with torch.no_grad():
        for cut in places.cuts:
            weight = weights[cut.tensor]
            index = torch.from_numpy(_rows(cut, orders[cut.unit][cut.block or 0])).to(weight.device)
            weight.copy_(weight.index_select(cut.dim, index))
    return copied


def _likeliest(logits: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits, logits.detach().argmax(-1), reduction="sum")


@contextmanager
def masked(model: nn.Module, places: Places) -> Iterator[dict[tuple[str, int], torch.Tensor]]:
    """Multiply what goes into output layers by masks of ones [samples, units], made as the first input comes."""
    masks: dict[tuple[str, int], torch.Tensor] = {}

    def hook(key: tuple[str, int]) -> Callable[[Any, Any], Any]:
        units = places.count(*key)

        def multiply(_module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
            (x,) = inputs
            if key not in masks:  # a layer that is called again (ALBERT, chunks of a sequence) keeps its mask
                masks[key] = x.new_ones(len(x), units).requires_grad_()
            shape = (len(x), *(1 for _ in x.shape[1:-1]), units, 1)
            return ((x.unflatten(-1, (units, -1)) * masks[key].view(shape)).flatten(-2),)

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


def _orders(scores: Sequence[NDArray[np.float64]], places: Places, unit: str) -> list[NDArray[np.int64]]:
    expected = [places.count(unit, block) for block in range(len(places.blocks))]
    if [len(score) for score in scores] != expected:
        raise UserError(f"The importance is of {[len(s) for s in scores]} {unit}; the model has {expected}.")
    if unit == HEADS and places.family.heads_are_shared:
        scores = [np.sum(scores, axis=0)] * len(scores)
    return [np.argsort(-score, kind="stable") for score in scores]


def _rows(cut: Cut, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows (or columns) of a tensor in their new order: whole units, the same in each run."""
    within = (order[:, None] * cut.size + np.arange(cut.size)).ravel()
    return (np.arange(cut.times)[:, None] * (cut.count * cut.size) + within).ravel()
