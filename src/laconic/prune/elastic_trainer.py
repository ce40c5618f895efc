"""`ElasticTrainer`: a `transformers.Trainer` that trains all widths of one elastic network at once, from a teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerControl, set_seed

from .. import engines
from ..engines.torch import as_tuple, input_names, output_names
from ..families import Family
from ..measure.score import score
from ..runtime import Predictor
from ..tasks import Encoder, Task
from ..train.isolated import isolated
from .distil import Counts, Outputs, hidden_loss, kind_of, label_loss, logits_loss, mask_of
from .elastic import Elastic
from .keep_best import RECORD, KeepBest
from .settings import PruneSettings
from .states import record_states


class ElasticTrainer(Trainer):  # type: ignore[misc]
    """A step is one forward of the teacher, then forward and backward of every shape; gradients add up.

    Everything else is the Trainer's: schedule, clipping, mixed precision, accumulation, checkpoints, callbacks.
    Evaluating scores every shape as the carved model that it would be, and keeps the best of each.
    """

    def __init__(
        self,
        *,
        model: Elastic,
        teacher: nn.Module,
        teacher_family: Family,
        settings: PruneSettings,
        keep: KeepBest,
        task: Task,
        encoder: Encoder,
        eval_examples: Sequence[Any],
        **kwargs: Any,
    ) -> None:
        super().__init__(model=model, **kwargs)
        # Elastic.forward takes any name, which the Trainer reads as a model that divides its loss by a count itself.
        self.model_accepts_loss_kwargs = False
        self.elastic, self.settings, self.keep = model, settings, keep
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)
        self.teacher_family, self.teacher_inputs = teacher_family, input_names(teacher)
        self.task, self.encoder, self.eval_examples = task, encoder, eval_examples
        self.kind, self.inputs, self.outputs = kind_of(task), input_names(model.model), output_names(model.model)
        self.counts = Counts(1.0, 1.0, 1.0)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> tuple[list[Any], None]:
        """The parts of one step's batch, augmented, and counted together: on all processes, a process's share."""
        samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if self.settings.augment is not None:
            with isolated():  # by step, not by what was drawn before: a run that goes on draws the same
                set_seed((self.args.seed + 1_000_003 * self.state.global_step + self.args.process_index) % 2**32)
                samples = [dict(self.settings.augment(batch)) for batch in samples]
        if samples:
            counted = torch.tensor(astuple(Counts.of(samples)), dtype=torch.float64)
            if self.args.world_size > 1:
                gathered = self.accelerator.gather(counted.float().to(device)[None])
                counted = gathered.double().mean(0).cpu()
            self.counts = Counts(*counted.tolist())
        return samples, None

    def training_step(
        self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Add up the gradients of all shapes on one part of a batch; give the sum of their losses."""
        # Dropout would be noise in what is compared with the teacher's states: TNEWS at width 3/4 has 92.0 % of its
        # answers after 150 steps without, 91.6 % after 300 with it.
        model.train(not self.settings.distils)
        if callable(getattr(self.optimizer, "train", None)):  # schedule-free optimizers have two modes
            self.optimizer.train()
        batch = self._prepare_inputs(inputs)
        feed = {name: batch[name] for name in self.inputs if name in batch}
        taught, states = self._teach(batch)
        total = torch.zeros((), device=self.args.device)
        for name in self.elastic.shapes:
            # Gradients stay on their process until all shapes have added theirs: DDP's own averaging runs in the last
            # backward alone, and passes over layers which that shape lacks.
            with self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    loss = self._loss(model, name, feed, batch, taught, states)
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
            engine = engines.load("torch", carved)
            size = self.args.per_device_eval_batch_size
            predictor = Predictor(self.task, self.encoder, engine, batch_size=size)
            scored = score(predictor, self.eval_examples)
            self.keep.offer(name, carved, self.state.global_step, scored)
            metrics |= {f"{metric_key_prefix}_{name}_{metric}": value for metric, value in scored.metrics.items()}
        self.log(metrics)
        self.control: TrainerControl = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _teach(self, batch: Mapping[str, Any]) -> tuple[Outputs, tuple[torch.Tensor, ...]]:
        feed = {name: batch[name] for name in self.teacher_inputs if name in batch}
        with torch.no_grad(), self.accelerator.autocast(), record_states(self.teacher, self.teacher_family) as states:
            taught = as_tuple(self.teacher(**feed), self.outputs)
        return taught, tuple(states)

    def _loss(
        self,
        model: nn.Module,
        name: str,
        feed: Mapping[str, Any],
        batch: Mapping[str, Any],
        taught: Outputs,
        states: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        settings, mask, counts = self.settings, mask_of(feed), self.counts
        output, own = model(name, states=True, **feed)
        outputs = as_tuple(output, self.outputs)
        loss = torch.zeros((), device=mask.device)
        if settings.distill_hidden:
            layers = self.elastic.shapes[name].layers
            loss = loss + settings.distill_hidden * hidden_loss(own, states, layers, mask, counts.tokens)
        if settings.distill_logits:
            soft = logits_loss(outputs, taught, self.kind, mask, counts, settings.distill_temperature)
            loss = loss + settings.distill_logits * soft
        if settings.label_loss:
            hard = label_loss(outputs, batch, self.kind, counts, settings.criterion)
            loss = loss + settings.label_loss * hard
        return loss

    def _average_gradients(self) -> None:
        """Over processes; all have gradients of the same parameters, as all run the same shapes."""
        gradients = [weight.grad for weight in self.elastic.parameters() if weight.grad is not None]
        works = [torch.distributed.all_reduce(gradient, async_op=True) for gradient in gradients]
        for work, gradient in zip(works, gradients, strict=True):
            work.wait()
            gradient /= self.args.world_size

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        self.keep.save(Path(output_dir or self.args.output_dir) / RECORD)

    def _save_checkpoint(self, *inputs: Any, **named: Any) -> None:
        super()._save_checkpoint(*inputs, **named)
        self.keep.forget_others()
