"""`train_widths`: one elastic network trained for all widths at once, each carved where it scored best (DynaBERT)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, final

import torch
from torch import nn
from transformers import TrainingArguments

from .. import engines
from ..engines.torch import as_tuple, input_names
from ..errors import UserError
from ..graphs.agree import allowed
from ..graphs.export import check_input_dtype, difference, export_onnx, sample_batches
from ..measure.score import Score
from ..models.carve import Shape, carve, shape_of, twin
from ..models.families import Family, find
from ..progress import SILENT, Progress
from ..training.arguments import CHECKPOINTING, distillation_arguments
from ..training.distillation import DistilTrainer, Method, TrainingRun, any_process, check_rows, distil
from ..training.model_folder import save_carved
from .elastic import Elastic
from .importance import ordered_model
from .repair import repair
from .sample import draw
from .widths import PruneSettings, Target

REFUSED = {
    **dict.fromkeys(CHECKPOINTING, "Elastic widths lend their weights for one call only."),
    "neftune_noise_alpha": "The student's embeddings are compared with the teacher's.",
    "torch_compile": "Elastic widths are no fixed graph.",
}
"""Training options that cannot have their effect here alone, and why."""
STEADY = 4
"""Rounding may move outputs by this part of what an export may."""


@dataclass(frozen=True)
class Pruned:
    """A carved model and how it was chosen: its score on the eval rows, and the step that it is of.

    The score carries no answers and no logits: it outlives the process that found it.
    """

    name: str
    folder: Path
    shape: Shape
    width: Fraction
    depth: Fraction
    score: Score
    step: int


def train_widths(
    run: TrainingRun, settings: PruneSettings, *, input_dtype: str = "int64", progress: Progress = SILENT
) -> tuple[Pruned, ...]:
    """Train all widths (and depths) of a model together, and give each as it scored best on the eval rows.

    Before the first step every width is carved and exported once. A step costs a forward of the teacher, and forward
    and backward of every width.
    """
    family = find(run.folder.config)
    check_input_dtype(input_dtype)
    labels = "'label_loss'" if settings.label_loss > 0 else "'importance' labels" if settings.needs_labels else None
    check_rows(run, "to prune with", "widths", labels=labels, hint="--importance teacher and --label_loss 0")
    method = _Widths(run, settings, family, input_dtype)
    best = distil(run, method, progress)
    return tuple(
        Pruned(t.name, best[t.name].folder, t.shape, t.width, t.depth, best[t.name].score, best[t.name].step)
        for t in method.targets
    )


def pruning_arguments(training: Mapping[str, Any], work: Path, seed: int) -> TrainingArguments:
    """Options of transformers with the defaults of width pruning; those that can have no effect are refused."""
    return distillation_arguments(training, work, seed, REFUSED, "width pruning")


@final
class _Widths(Method):
    """All widths in one elastic network."""

    arguments = staticmethod(pruning_arguments)
    file, scores_start = "config.json", False
    targets: tuple[Target, ...]
    notes: tuple[str, ...]

    def __init__(self, run: TrainingRun, settings: PruneSettings, family: Family, input_dtype: str) -> None:
        self.run, self.settings, self.family, self.input_dtype = run, settings, family, input_dtype

    def begin(self, model: Any) -> tuple[Sequence[str], Family | None]:
        self.targets, self.notes = self.settings.targets(shape_of(model, self.family))
        return [target.name for target in self.targets], self.family

    def prepare(self, model: Any, begun: bool, progress: Progress) -> None:
        if not begun:
            for note in self.notes:
                progress.say(note)
            _dry_run(model, self.family, self.targets, self.input_dtype, progress)

    def student(self, model: Any, begun: bool, steps: int, progress: Progress) -> Elastic:
        if begun:  # a checkpoint holds the weights to go on with
            student = twin(model, torch.clone)
        else:
            run = self.run
            rows, seed = run.train if self.settings.importance == "labels" else run.rows, run.seed
            student = ordered_model(
                model, self.family, self.run.folder, rows, self.settings, seed=seed, progress=progress
            )
        return Elastic(student, {target.name: target.shape for target in self.targets}, self.family)

    def trainer(self, **parts: Any) -> DistilTrainer:
        return ElasticTrainer(**parts)

    def finish(self, trainer: Any, progress: Progress) -> None:
        """Fit the best of each width to the full model by least squares; what scores as well takes its place.

        In what is kept it counts as one step more. Widths of fewer layers have no layer of their own to be fitted to,
        and what learns from labels alone or from another teacher is not to become like the full model.
        """
        folder, run = self.run.folder, self.run
        late = run.until is not None and any_process(time.monotonic() >= run.until, trainer.args)
        if late or not self.settings.distils or self.settings.teacher is not None:
            return
        full = folder.load().eval()
        sample = draw(folder, full, run.rows, run.seed)
        layers = shape_of(full, self.family).layers
        for target in (target for target in self.targets if target.shape.layers == layers):
            repaired = folder.at(trainer.keep.best[target.name].folder).load().eval()
            repair(full, repaired, self.family, sample, progress=progress)
            if _is_steady(repaired):
                step = trainer.state.global_step + 1
                trainer.keep.offer(target.name, repaired, step, trainer.score(repaired))

    def write(self, network: Any, place: Path) -> None:
        save_carved(network, place, source=self.run.folder.path, overwrite=True)


def _is_steady(model: nn.Module) -> bool:
    """Whether outputs hardly hang on rounding, as its export will ask; where training went astray they may."""
    exact = engines.load("torch", twin(model, torch.clone).double())
    off, largest = difference(model, exact, sample_batches(model, input_names(model)))
    return off <= allowed(largest) / STEADY


def _dry_run(model: nn.Module, family: Family, targets: Sequence[Target], input_dtype: str, progress: Progress) -> None:
    """Carve and export every shape, so that nothing of the kind fails after hours."""
    with progress.track("dry run", len(targets)) as advance, tempfile.TemporaryDirectory() as scratch:
        for target in targets:
            try:
                carved = carve(model, family, target.shape)
                export_onnx(carved, Path(scratch) / f"{target.name}.onnx", input_dtype=input_dtype)
            except UserError as error:
                kind = type(error)
                what = f"{target.name}: {error.what}"
                raise kind(what, where=error.where, hint=error.hint, option=error.option) from error
            advance(1, target.name)
            (Path(scratch) / f"{target.name}.onnx").unlink()


class ElasticTrainer(DistilTrainer):
    """A step is one forward of the teacher, then forward and backward of every shape; gradients add up.

    Evaluating scores every shape as the carved model that it would be, and keeps the best of each.
    """

    def __init__(self, *, model: Elastic, **parts: Any) -> None:
        super().__init__(model=model, **parts)
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
            scored = self.score(carved)
            self.keep.offer(name, carved, self.state.global_step, scored)
            metrics |= {f"{metric_key_prefix}_{name}_{metric}": value for metric, value in scored.metrics.items()}
        return self.log_scores(metrics)

    def _average_gradients(self) -> None:
        """Over processes; all have gradients of the same parameters, as all run the same shapes."""
        gradients = [weight.grad for weight in self.elastic.parameters() if weight.grad is not None]
        works = [torch.distributed.all_reduce(gradient, async_op=True) for gradient in gradients]
        for work, gradient in zip(works, gradients, strict=True):
            work.wait()
            gradient /= self.args.world_size
