"""`ElasticTrainer`: a `transformers.Trainer` that trains all widths of one elastic network at once, from a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..engines.torch import as_tuple
from ..training.distil_trainer import DistilTrainer
from .elastic import Elastic


class ElasticTrainer(DistilTrainer):
    """A step is one forward of the teacher, then forward and backward of every shape; gradients add up.

    Evaluating scores every shape as the carved model that it would be, and keeps the best of each.
    """

    def __init__(self, *, model: Elastic, **parts: Any) -> None:
        super().__init__(model=model, student=model.model, **parts)
        self.elastic = model

    def training_step(
        self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Add up the gradients of all shapes on one part of a batch; give the sum of their losses."""
        batch, feed, taught, states = self.begin_step(model, inputs)
        total = torch.zeros((), device=self.args.device)
        for name, shape in self.elastic.shapes.items():
            # Gradients stay on their process until all shapes have added theirs: DDP's own averaging runs in the last
            # backward alone, and passes over layers which that shape lacks.
            with self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    output, own = model(name, states=True, **feed)
                    outputs = as_tuple(output, self.outputs)
                    loss = self.total_loss(outputs, own, batch, taught, states, shape.layers)
                self.accelerator.backward(loss)
            total += loss.detach()
        if self.args.world_size > 1 and self.accelerator.sync_gradients:
            self._average_gradients()
        return total

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:
        """Score every shape as it is now, and keep those that are the best so far."""
        metrics: dict[str, float] = {}
        for name in self.elastic.shapes:
            carved = self.elastic.carved(name)
            scored = self.score_of(carved)
            self.keep.offer(name, carved, self.state.global_step, scored)
            metrics |= {f"{metric_key_prefix}_{name}_{metric}": value for metric, value in scored.metrics.items()}
        return self.tell(metrics)

    def _average_gradients(self) -> None:
        """Over processes; all have gradients of the same parameters, as all run the same shapes."""
        gradients = [weight.grad for weight in self.elastic.parameters() if weight.grad is not None]
        works = [torch.distributed.all_reduce(gradient, async_op=True) for gradient in gradients]
        for work, gradient in zip(works, gradients, strict=True):
            work.wait()
            gradient /= self.args.world_size
