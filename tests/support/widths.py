"""A small model that has learnt its rows, and trainers of its widths without the rest of the story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainingArguments, set_seed

from learnable import LEARN, LENGTH, jsonl, rows, single, tiny
from tersely import data
from tersely.engines.torch import input_names
from tersely.models.carve import shape_of, twin
from tersely.models.families import find
from tersely.models.folder import ModelFolder, open_folder
from tersely.models.torch_folder import load_module
from tersely.prune import Elastic, PruneSettings
from tersely.prune.dynabert import ElasticTrainer
from tersely.prune.importance import ordered_model
from tersely.tasks import Columns
from tersely.tasks.options import TaskOptions
from tersely.training.batches import Collator, FeatureDataset
from tersely.training.checkpoints import KeepBest
from tersely.training.finetune import LabelledRows, finetune
from tersely.training.model_folder import save_carved
from tersely.training.scored_trainer import Scorer
from tersely.training.teacher import Teacher

TRAINING: dict[str, Any] = {"learning_rate": 1e-3, "num_train_epochs": 1, "save_steps": 6, "logging_steps": 3}
"""What prunes it in a second."""


def learnt(folder: Path, make: Callable[..., dict[str, Any]] = single, **fields: Any) -> ModelFolder:
    """Fine-tune a model of two layers with four heads each on rows that one word decides."""
    made = rows(make, 160)
    train, dev = jsonl(folder / "train.jsonl", made[:110]), jsonl(folder / "dev.jsonl", made[110:])
    encoder = tiny(folder / "encoder", layers=2, **fields)
    options = TaskOptions(task="sequence_classification", max_seq_length=LENGTH)
    both = LabelledRows(data.read(train), data.read(dev))
    finetune(encoder, both, folder / "model", options=options, training=LEARN)
    return open_folder(folder / "model")


def examples(model: ModelFolder, part: str) -> list[Any]:
    """Its `train` or `dev` rows."""
    return model.task.read(data.read(model.path.parent / f"{part}.jsonl"), Columns(), labelled=True)


def trainer_for(
    folder: ModelFolder,
    work: Path,
    train: list[Any],
    evaluation: list[Any],
    settings: PruneSettings,
    *,
    dropout: bool = True,
    ordered: bool = False,
    **training: Any,
) -> ElasticTrainer:
    """An `ElasticTrainer` on a copy of the model, its heads in the order that they had unless `ordered`."""
    model = load_module(folder.path)
    family = find(model)
    student = twin(model, torch.clone)
    if ordered:
        student = ordered_model(model, family, folder, train, settings, seed=42)
    if not dropout:
        for part in student.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
    targets, _ = settings.targets(shape_of(model, family))
    defaults = {"per_device_train_batch_size": 8, "report_to": [], "use_cpu": True, "dataloader_pin_memory": False}
    arguments = TrainingArguments(
        output_dir=str(work), remove_unused_columns=False, disable_tqdm=True, **{**defaults, **training}
    )
    set_seed(arguments.seed)

    def write(network: Any, place: Path) -> None:
        save_carved(network, place, source=folder.path, overwrite=True)

    return ElasticTrainer(
        model=Elastic(student, {target.name: target.shape for target in targets}, family),
        teacher=Teacher(model, family),
        settings=settings,
        keep=KeepBest(work, folder.task, write),
        scorer=Scorer(folder.task, folder.encoder, evaluation),
        args=arguments,
        train_dataset=FeatureDataset(folder.task, train, folder.encoder, labelled=settings.label_loss > 0),
        eval_dataset=evaluation,
        data_collator=Collator(folder.encoder, input_names(model)),
    )


def weights(model: Any) -> torch.Tensor:
    """All of them in one row."""
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def weights_in(folder: Path) -> dict[str, np.ndarray]:
    """Those of a folder's file, by name."""
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def flipped(found: list[Any]) -> list[Any]:
    """The same rows with the other of two labels."""
    return [replace(example, gold=1 - example.gold) for example in found]
