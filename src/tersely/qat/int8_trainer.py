"""`Int8Trainer`: a `transformers.Trainer` of a fake-quantized model, from labels and an FP32 teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..engines.torch import as_tuple
from ..measure.fidelity import mean_abs_logit_change
from ..training.distil_trainer import DistilTrainer
from .model import FakeQuantized
from .settings import QatSettings

NAME = "qat"


class Int8Trainer(DistilTrainer):
    """A step is a forward of the teacher and forward and backward of the student; then ranges take in the batch.

    Evaluating scores the fake-quantized model, which is what the exported graph computes, and keeps the best.
    """

    def __init__(self, *, model: FakeQuantized, settings: QatSettings, **parts: Any) -> None:
        super().__init__(model=model, student=model.model, settings=settings, **parts)
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
        scored = self.score_of(self.quantized.model)
        if self._taught is None:
            self._taught = self.score_of(self.teacher).answers.logits
        moved = mean_abs_logit_change(self._taught, scored.answers.logits, self.task.centred_axis)
        self.keep.offer(NAME, self.quantized, self.state.global_step, scored, moved)
        return self.tell({f"{metric_key_prefix}_{NAME}_{name}": value for name, value in scored.metrics.items()})
