"""A model with its most important heads and neurons first, and what slices of it give without any training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ..engines.torch import as_tuple, input_names, output_names
from ..errors import UserError
from ..models.carve import carve, shape_of, twin
from ..models.families import Family, find
from ..models.folder import ModelFolder
from ..progress import SILENT, Progress
from ..training.batches import Collator, FeatureDataset
from ..training.distil import ONE, kind_of, label_loss
from .importance import Importance, importance, own_predictions
from .reorder import reorder
from .settings import PruneSettings

BATCH = 16


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
    return reorder(model, _importance(model, family, folder, examples, settings, seed, progress), family)


def check_labels(examples: Sequence[Any], settings: PruneSettings) -> None:
    """Refuse rows without labels where labels are asked for."""
    if not examples:
        raise UserError("There are no training rows to prune with.", hint="Give some with --train_file.")
    if settings.needs_labels:
        for number, example in enumerate(examples):
            if example.gold is None:
                why = "'label_loss'" if settings.label_loss > 0 else "'importance' labels"
                what = f"Training row {number + 1} has no label, which the option {why} needs."
                raise UserError(what, hint="Without labels use --importance teacher and --label_loss 0.")


def _importance(
    model: nn.Module,
    family: Family,
    folder: ModelFolder,
    examples: Sequence[Any],
    settings: PruneSettings,
    seed: int,
    progress: Progress,
) -> Importance:
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

        return importance(model, batches(), loss if by_labels else own_predictions(model), family)
