"""`train_int8`: train a model to be right in INT8, and give it as a float model and the `QuantMap` of its integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from torch import nn
from transformers import TrainingArguments

from ..engines.torch import as_tuple
from ..measure.score import Score, mean_abs_logit_change
from ..models.families import Family, find
from ..models.torch_folder import check_finite
from ..progress import SILENT, Progress
from ..quant_map import QuantMap
from ..training.arguments import CHECKPOINTING, distillation_arguments
from ..training.checkpoints import digest
from ..training.distillation import DistilTrainer, Method, TrainingRun, check_rows, distil
from ..training.model_folder import save_model
from .input_quantizer import LARGEST_WINDOW
from .model import FakeQuantized
from .options import QatSettings
from .start import Calibrated, find_start, first_position_only

REFUSED = {
    **dict.fromkeys(CHECKPOINTING, "Inputs would be looked at twice."),
    "neftune_noise_alpha": "Noise would widen the ranges.",
    "torch_compile": "Ranges change with every step.",
}
"""Training options that cannot have their effect here alone, and why."""
NAME = "qat"
START, MAP = "start.npz", "quant_map.npz"


@dataclass(frozen=True)
class Trained:
    """A model folder in floats, the `QuantMap` that makes it INT8, its score as such on the eval rows, and its step.

    The score carries no answers and no logits: it outlives the process that found it.
    """

    folder: Path
    quant_map: QuantMap = field(repr=False)
    score: Score
    step: int


def train_int8(
    run: TrainingRun, calibrated: Calibrated, settings: QatSettings, *, progress: Progress = SILENT
) -> Trained:
    """Train a model with the rounding of INT8 in its forward, and give it as it scored best on the eval rows.

    What it begins with, calibration alone, is scored too: training that does harm on the eval rows gives step 0.
    A step costs a forward of the teacher, and forward and backward of the model.
    """
    labels = "'label_loss'" if settings.label_loss > 0 else None
    check_rows(run, "for qat", "a step", labels=labels, hint="--label_loss 0")
    best = distil(run, _Int8(run, calibrated, settings), progress)[NAME]
    return Trained(best.folder, QuantMap.load(best.folder / MAP), best.score, best.step)


def int8_arguments(training: Mapping[str, Any], work: Path, seed: int) -> TrainingArguments:
    """Options of transformers with the defaults of compression; those that can have no effect are refused."""
    return distillation_arguments(training, work, seed, REFUSED, "quantization-aware training")


@final
class _Int8(Method):
    """One model with the rounding of INT8 in its forward, from where calibration leaves it."""

    arguments = staticmethod(int8_arguments)
    file, scores_start = MAP, True
    family: Family | None

    def __init__(self, run: TrainingRun, calibrated: Calibrated, settings: QatSettings) -> None:
        self.run, self.calibrated, self.settings = run, calibrated, settings

    def begin(self, model: Any) -> tuple[Sequence[str], Family | None]:
        self.family = find(model) if self.settings.distill_hidden else None
        return [NAME], self.family

    def decisive(self) -> list[Any]:
        samples = self.calibrated.samples
        return [list(self.calibrated.skip_layers), digest([samples.features, samples.judging, samples.sets])]

    def prepare(self, model: Any, begun: bool, progress: Progress) -> None:
        place = self.run.work / START
        if place.is_file():
            return
        folder = self.run.folder
        judging = folder.task.features(self.run.evaluation, folder.encoder)
        axis, seed = folder.task.centred_axis, self.run.seed
        found = find_start(
            model, self.calibrated, self.settings, judging, centred_axis=axis, seed=seed, progress=progress
        )
        part = place.with_suffix(".part")
        found.save(part)
        part.replace(place)

    def student(self, model: Any, begun: bool, steps: int, progress: Progress) -> FakeQuantized:
        return FakeQuantized(
            model,
            QuantMap.load(self.run.work / START),
            self.calibrated.targets,
            self.settings,
            first_only=first_position_only(self.calibrated),
            window=min(LARGEST_WINDOW, -(-steps // 2)),
            family=self.family,
        )

    def trainer(self, **parts: Any) -> DistilTrainer:
        return Int8Trainer(**parts)

    def write(self, network: FakeQuantized, place: Path) -> None:
        """In floats, and its map beside."""
        check_finite(network.model, "the trained model")
        quant_map, folder = network.quant_map(), self.run.folder
        save_model(
            network.plain(),
            place,
            dict(folder.config),
            source=folder.path,
            overwrite=True,
            beside=lambda inside: quant_map.save(inside / MAP),
        )


class Int8Trainer(DistilTrainer):
    """A step is a forward of the teacher and forward and backward of the student; then ranges take in the batch.

    Evaluating scores the fake-quantized model, which is what the exported graph computes, and keeps the best.
    """

    def __init__(self, *, model: FakeQuantized, settings: QatSettings, **parts: Any) -> None:
        super().__init__(model=model, settings=settings, **parts)
        self.quantized, self.pact = model, (settings.pact_rate, settings.pact_decay)
        self._taught: list[Any] | None = None

    def create_optimizer(self, model: Any = None) -> Any:
        """PACT's clips have a learning rate and a decay of their own."""
        if self.optimizer is None:
            clips = self.quantized.clips()
            for clip in clips:
                clip.requires_grad_(False)  # out of the groups that the Trainer makes
            made: Any = super().create_optimizer(model)
            for clip in clips:
                clip.requires_grad_(True)
            if clips:
                rate, decay = self.pact
                made.add_param_group({"params": clips, "lr": self.args.learning_rate * rate, "weight_decay": decay})
        return self.optimizer

    def training_step(
        self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Add up the gradients of one part of a batch; with the last part ranges take in all of it."""
        batch, feed, taught, states = self.begin_step(model, inputs)
        with self.compute_loss_context_manager():
            output, own = model(states=self.settings.distill_hidden > 0, **feed)
            outputs = as_tuple(output, self.outputs)
            loss = self.total_loss(outputs, own, batch, taught, states, range(len(own) - 1))
        self.accelerator.backward(loss)
        if self.accelerator.sync_gradients:
            self.quantized.fold(self.args.world_size)
        return loss.detach()

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:
        """Score the model as it is now, and keep it if none before was better, or as good and nearer to the teacher."""
        scored = self.score(self.quantized.model)
        if self._taught is None:
            self._taught = self.score(self.teacher.module).answers.logits
        moved = mean_abs_logit_change(self._taught, scored.answers.logits, self.scorer.task.centred_axis)
        self.keep.offer(NAME, self.quantized, self.state.global_step, scored, moved)
        return self.log_scores({f"{metric_key_prefix}_{NAME}_{name}": value for name, value in scored.metrics.items()})
