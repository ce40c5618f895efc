"""The frame of a training that learns from a teacher, scores as it goes, keeps the best and survives being killed.

`distil` runs it; a `Method` says what is trained, such as elastic widths or a model that is to be right in INT8.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed

from ..engines.torch import as_tuple, input_names, output_names
from ..errors import UserError
from ..models.families import Family
from ..models.folder import ModelFolder
from ..models.torch_folder import check_finite
from ..progress import SILENT, Progress
from .arguments import steps_of
from .batches import Collator, FeatureDataset
from .checkpoints import RECORD, Best, KeepBest, check_work, fingerprint, kept_for_later, read_result, resume
from .isolated import isolated
from .losses import ONE, Counts, LossSettings, Outputs, hidden_loss, kind_of, label_loss, logits_loss, mask_of
from .scored_trainer import ScoredTrainer, Scorer, ShowProgress
from .teacher import Teacher, open_teacher, record_states, teacher_marks

States = Sequence[torch.Tensor]


@dataclass(frozen=True)
class TrainingRun:
    """A model to train, the rows that train and score it, and how.

    `training` holds options of `transformers.TrainingArguments`; `save_steps` is how often rows are scored. `work`
    belongs to this training and stays: a run that was killed goes on from its last checkpoint to the same result, a
    finished one is given back at once, another one's leavings are removed. The folder is read only. `until`: when it
    has to end, by `time.monotonic`, wherever it stands.
    """

    folder: ModelFolder
    train: Sequence[Any]
    evaluation: Sequence[Any]
    work: Path
    training: Mapping[str, Any]
    seed: int = 42
    unlabelled: Sequence[Any] = ()
    """Rows without labels beside those of `train`: they learn from the teacher alone."""
    until: float | None = None

    @property
    def rows(self) -> list[Any]:
        """All that a teacher can say something of."""
        return [*self.train, *self.unlabelled]


def check_rows(run: TrainingRun, train: str, evaluation: str, *, labels: str | None, hint: str) -> None:
    """Refuse rows that are not there, and rows without labels where an option, `labels`, needs them."""
    if not (run.train if labels else run.rows):
        kind = "labelled " if run.unlabelled else ""
        raise UserError(f"There are no {kind}training rows {train}.", hint="Give some with --train_file.")
    if not run.evaluation:
        raise UserError(f"There are no eval rows to choose {evaluation} by.", hint="Give some with --eval_file.")
    for number, example in enumerate(run.train if labels else ()):
        if example.gold is None:
            what = f"Training row {number + 1} has no label, which the option {labels} needs."
            raise UserError(what, hint=f"Without labels use {hint}.")


class Method(Protocol):
    """What one kind of training adds to the frame."""

    settings: Any
    """Its `LossSettings`."""
    file: str
    """A file of every folder that it writes."""
    scores_start: bool
    """Whether what it begins with is scored and kept too: a training that only does harm ends where it began."""
    less_is_better: bool = False
    """Whether it scores a distance, not the task's metric."""

    @staticmethod
    def arguments(training: Mapping[str, Any], work: Path, seed: int) -> TrainingArguments:
        """Options of transformers; those that can have no effect are refused."""

    def begin(self, model: Any) -> tuple[Sequence[str], Family | None]:
        """Look at the model: names of the networks to make, and its family where states are compared."""

    def decisive(self) -> list[Any]:
        """What else decides the result, in plain types; nothing, as a rule."""
        return []

    def prepare(self, model: Any, begun: bool, progress: Progress) -> None:
        """Do on one process what is done before any training; `begun`: there is a checkpoint to go on from."""

    def student(self, model: Any, begun: bool, steps: int, progress: Progress) -> Any:
        """The module to train, with the transformers model inside as `model`."""

    def trainer(self, **parts: Any) -> DistilTrainer:
        """A trainer of it."""

    def finish(self, trainer: Any, progress: Progress) -> None:
        """Better what training ended with, if there is a way; nothing, as a rule."""
        return

    def write(self, network: Any, place: Path) -> None:
        """Write a network as a folder, whole or not at all; one that is there is replaced."""


def distil(run: TrainingRun, method: Method, progress: Progress = SILENT) -> dict[str, Best]:
    """Train, and give the best of each network by its name; a finished training is given back at once."""
    check_work(run.work)
    folder, settings = run.folder, method.settings
    with isolated():
        arguments = method.arguments(run.training, run.work, run.seed)
        model = folder.load()
        names, family = method.begin(model)
        teacher = open_teacher(model, family, settings)
        decisive = [settings.as_json(), teacher_marks(settings), arguments.world_size, *method.decisive()]
        mark = fingerprint(folder.path, folder.task, arguments, run.train, run.unlabelled, run.evaluation, decisive)
        with arguments.main_process_first(local=False):
            finished = read_result(run.work, mark, names, method.file)
            begun = None if finished else resume(run.work, mark, progress)
            if not finished and arguments.process_index == 0:
                method.prepare(model, begun is not None, progress)
        if finished:
            return finished
        rows = run.rows if settings.distils else run.train
        dataset = FeatureDataset(folder.task, rows, folder.encoder, labelled=settings.label_loss > 0)
        steps = steps_of(arguments, len(dataset))
        student = method.student(model, begun is not None, steps, progress)
        writes = arguments.process_index == 0
        keep = KeepBest(run.work, folder.task, method.write, writes, less_is_better=method.less_is_better)
        if begun:
            keep.load(begun / RECORD)
        set_seed(run.seed)
        trainer = method.trainer(
            model=student,
            teacher=teacher,
            settings=settings,
            keep=keep,
            scorer=Scorer(folder.task, folder.encoder, run.evaluation),
            args=arguments,
            train_dataset=dataset,
            eval_dataset=run.evaluation,
            data_collator=Collator(folder.encoder, {*input_names(model), *input_names(teacher.module)}),
        )
        with kept_for_later(run.work):
            with progress.track(f"train {', '.join(names)}", steps) as advance:
                trainer.show(ShowProgress(advance, trainer.scorer, names))
                trainer.add_callback(ScoreAtEnds(trainer, start=method.scores_start, until=run.until))
                trainer.run(begun)
                check_finite(student.model, "the trained model")
                check_finite(student, "the trained model")
            trainer.shown = progress
            method.finish(trainer, progress)
            trainer.accelerator.wait_for_everyone()  # what is replaced goes when nobody reads it any more
        with arguments.main_process_first(local=False):
            if arguments.process_index == 0:
                keep.finish(mark)
        return keep.best


class ScoreAtEnds(TrainerCallback):  # type: ignore[misc]
    """Scores what a training begins with, if asked to; scores and saves after its last step, however few there are.

    `until`: when it ends, by `time.monotonic`, though there are steps left.
    """

    def __init__(self, trainer: Any, *, start: bool, until: float | None = None) -> None:
        self._trainer, self._start, self._until = trainer, start, until

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A run that goes on has that score already."""
        if self._start and state.global_step == 0:
            self._trainer.evaluate()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Ask for both."""
        late = self._until is not None and any_process(time.monotonic() >= self._until, args)
        if late or state.global_step >= state.max_steps:
            control.should_evaluate = control.should_save = True
            control.should_training_stop = control.should_training_stop or late


def any_process(flag: bool, args: TrainingArguments) -> bool:
    """Whether it is so on one process at least: all must stop at the same step."""
    if args.world_size == 1:
        return flag
    found = torch.tensor(float(flag), device=args.device)
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MAX)
    return bool(found)


class DistilTrainer(ScoredTrainer):
    """Everything but steps and scores is the Trainer's: schedule, clipping, precision, accumulation, checkpoints.

    `model` holds the transformers model as its own `model`. A subclass says what a step and what a score is.
    """

    def __init__(
        self, *, model: nn.Module, teacher: Teacher, settings: LossSettings, keep: KeepBest, **parts: Any
    ) -> None:
        super().__init__(model=model, **parts)
        # A forward that takes any name is read by the Trainer as a model that divides its loss by a count itself.
        self.model_accepts_loss_kwargs = False
        self.settings, self.keep = settings, keep
        teacher.module.to(self.args.device).eval().requires_grad_(False)
        self.teacher, self.teacher_inputs = teacher, input_names(teacher.module)
        self.kind = kind_of(self.scorer.task)
        self.inputs, self.outputs = input_names(model.model), output_names(model.model)
        self.counts = ONE

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
        with self.accelerator.autocast():
            taught, states = self.taught(batch) if self.settings.distils else ((), ())
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

    def taught(self, batch: Mapping[str, Any]) -> tuple[Outputs, States]:
        """What the teacher says of a batch, and its states where they are compared."""
        feed = {name: batch[name] for name in self.teacher_inputs if name in batch}
        with torch.no_grad():
            if self.teacher.family is None:
                return as_tuple(self.teacher.module(**feed), self.outputs), ()
            with record_states(self.teacher.module, self.teacher.family) as states:
                taught = as_tuple(self.teacher.module(**feed), self.outputs)
            return taught, tuple(states)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.should_save:  # newer versions of transformers call this on every process
            self.keep.save(Path(output_dir or self.args.output_dir) / RECORD)

    def _save_checkpoint(self, *inputs: Any, **named: Any) -> None:
        super()._save_checkpoint(*inputs, **named)
        self.keep.forget_others()
