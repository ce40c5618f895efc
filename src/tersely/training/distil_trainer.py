"""`DistilTrainer`: what trainers have in common that learn from a teacher, score as they go and keep the best."""

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
from ..measure.score import Score, score
from ..models.families import Family
from ..runtime import Predictor
from ..tasks import Encoder, Task
from .distil import Counts, Outputs, hidden_loss, kind_of, label_loss, logits_loss, mask_of
from .isolated import isolated
from .keep_best import RECORD, KeepBest
from .loss_settings import LossSettings
from .states import record_states

States = Sequence[torch.Tensor]


class DistilTrainer(Trainer):  # type: ignore[misc]
    """Everything but steps and scores is the Trainer's: schedule, clipping, precision, accumulation, checkpoints.

    `student`: the transformers model inside of what is trained. A subclass says what a step and what a score is.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        student: nn.Module,
        teacher: nn.Module,
        teacher_family: Family | None,
        settings: LossSettings,
        keep: KeepBest,
        task: Task,
        encoder: Encoder,
        eval_examples: Sequence[Any],
        **kwargs: Any,
    ) -> None:
        super().__init__(model=model, **kwargs)
        # A forward that takes any name is read by the Trainer as a model that divides its loss by a count itself.
        self.model_accepts_loss_kwargs = False
        self.settings, self.keep = settings, keep
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)
        self.teacher_family, self.teacher_inputs = teacher_family, input_names(teacher)
        self.task, self.encoder, self.eval_examples = task, encoder, eval_examples
        self.kind, self.inputs, self.outputs = kind_of(task), input_names(student), output_names(student)
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

    def begin_step(
        self, model: nn.Module, inputs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], Outputs, States]:
        """Set modes; give the batch, what of it the student is fed, and what the teacher says of it."""
        # Dropout would be noise in what is compared with the teacher's: TNEWS at width 3/4 has 92.0 % of its answers
        # after 150 steps without, 91.6 % after 300 with it.
        model.train(not self.settings.distils)
        if callable(getattr(self.optimizer, "train", None)):  # schedule-free optimizers have two modes
            self.optimizer.train()
        batch = self._prepare_inputs(inputs)
        feed = {name: batch[name] for name in self.inputs if name in batch}
        taught, states = self._teach(batch) if self.settings.distils else ((), ())
        return batch, feed, taught, states

    def total_loss(
        self,
        outputs: Outputs,
        own: States,
        batch: Mapping[str, Any],
        taught: Outputs,
        states: States,
        layers: Sequence[int],
    ) -> torch.Tensor:
        """The sum of the losses that the settings ask for; `layers`: the teacher's that `own` states come from."""
        settings, mask, counts = self.settings, mask_of(batch), self.counts
        loss = torch.zeros((), device=mask.device)
        if settings.distill_hidden:
            loss = loss + settings.distill_hidden * hidden_loss(own, states, layers, mask, counts.tokens)
        if settings.distill_logits:
            soft = logits_loss(outputs, taught, self.kind, mask, counts, settings.distill_temperature)
            loss = loss + settings.distill_logits * soft
        if settings.label_loss:
            hard = label_loss(outputs, batch, self.kind, counts, settings.criterion)
            loss = loss + settings.label_loss * hard
        return loss

    def score_of(self, model: nn.Module) -> Score:
        """The score of a model on the eval rows."""
        engine = engines.load("torch", model)
        size = self.args.per_device_eval_batch_size
        return score(Predictor(self.task, self.encoder, engine, batch_size=size), self.eval_examples)

    def tell(self, metrics: dict[str, float]) -> dict[str, float]:
        """Log scores, and let callbacks know of them."""
        self.log(metrics)
        self.control: TrainerControl = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _teach(self, batch: Mapping[str, Any]) -> tuple[Outputs, States]:
        feed = {name: batch[name] for name in self.teacher_inputs if name in batch}
        with torch.no_grad(), self.accelerator.autocast():
            if self.teacher_family is None:
                return as_tuple(self.teacher(**feed), self.outputs), ()
            with record_states(self.teacher, self.teacher_family) as states:
                taught = as_tuple(self.teacher(**feed), self.outputs)
            return taught, tuple(states)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.should_save:  # newer versions of transformers call this on every process
            self.keep.save(Path(output_dir or self.args.output_dir) / RECORD)

    def _save_checkpoint(self, *inputs: Any, **named: Any) -> None:
        super()._save_checkpoint(*inputs, **named)
        self.keep.forget_others()
