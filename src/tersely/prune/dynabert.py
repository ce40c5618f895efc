"""`train_widths`: one elastic network trained for all widths at once, each carved where it scored best (DynaBERT)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainingArguments, set_seed

from ..engines.torch import input_names
from ..errors import UserError
from ..graphs.export import check_input_dtype, export_onnx
from ..measure.score import Score
from ..models.carve import Shape, carve, shape_of, twin
from ..models.families import Family, find
from ..models.folder import ModelFolder
from ..progress import SILENT, Progress
from ..training.batches import Collator, FeatureDataset
from ..training.isolated import isolated
from ..training.keep_best import RECORD, KeepBest, score_from_json
from ..training.resume import fingerprint, resume
from ..training.scored_run import (
    CHECKPOINTING,
    check_work,
    forget_checkpoints,
    make_trainer,
    read_result,
    run_training,
    scored_arguments,
    write_result,
)
from ..training.settings import steps_of
from ..training.teacher import open_teacher, teacher_marks
from .carved_folder import carved_writer
from .elastic import Elastic
from .elastic_trainer import ElasticTrainer
from .prune_only import check_labels, ordered_model
from .settings import PruneSettings, Target

REFUSED = {
    **dict.fromkeys(CHECKPOINTING, "Elastic widths lend their weights for one call only."),
    "neftune_noise_alpha": "The student's embeddings are compared with the teacher's.",
    "torch_compile": "Elastic widths are no fixed graph.",
}
"""Training options that cannot have their effect here alone, and why."""


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
    folder: ModelFolder,
    train_examples: Sequence[Any],
    eval_examples: Sequence[Any],
    work: Path,
    settings: PruneSettings,
    training: Mapping[str, Any],
    *,
    seed: int = 42,
    input_dtype: str = "int64",
    progress: Progress = SILENT,
) -> tuple[Pruned, ...]:
    """Train all widths (and depths) of a model together, and give each as it scored best on the eval rows.

    `training` holds options of `transformers.TrainingArguments`; `save_steps` is how often widths are scored. `work`
    belongs to this training and stays: a run that was killed goes on from its last checkpoint to the same result, a
    finished one is given back at once, another one's leavings are removed. Before the first step every width is
    carved and exported once. A step costs a forward of the teacher, and forward and backward of every width.
    The folder is read only.
    """
    family = find(folder.config)
    check_input_dtype(input_dtype)
    check_labels(train_examples, settings)
    check_work(work)
    if not eval_examples:
        raise UserError("There are no eval rows to choose widths by.", hint="Give some with --eval_file.")
    with isolated():
        arguments = pruning_arguments(training, work, seed)
        model = folder.load()
        targets, notes = settings.targets(shape_of(model, family))
        teacher, teacher_family = open_teacher(model, family, settings)
        mark = _mark(folder, arguments, settings, train_examples, eval_examples)
        with arguments.main_process_first(local=False):
            finished = _finished(work, mark, targets)
            begun = None if finished else resume(work, mark, progress)
            if not finished and not begun and arguments.process_index == 0:
                for note in notes:
                    progress.say(note)
                _dry_run(model, family, targets, input_dtype, progress)
        if finished:
            return finished
        student = twin(model, torch.clone)  # a checkpoint holds the weights to go on with
        if not begun:
            student = ordered_model(model, family, folder, train_examples, settings, seed=seed, progress=progress)
        set_seed(seed)
        keep = KeepBest(work, folder.task, carved_writer(folder.path), writes=arguments.process_index == 0)
        if begun:
            keep.load(begun / RECORD)
        dataset = FeatureDataset(folder.task, train_examples, folder.encoder, labelled=settings.label_loss > 0)
        trainer = make_trainer(
            ElasticTrainer,
            model=Elastic(student, {target.name: target.shape for target in targets}, family),
            teacher=teacher,
            teacher_family=teacher_family,
            settings=settings,
            keep=keep,
            task=folder.task,
            encoder=folder.encoder,
            eval_examples=eval_examples,
            args=arguments,
            train_dataset=dataset,
            eval_dataset=eval_examples,
            data_collator=Collator(folder.encoder, {*input_names(model), *input_names(teacher)}),
        )
        names, steps = [target.name for target in targets], steps_of(arguments, len(dataset))
        run_training(trainer, begun, names, steps, work, student, progress)
        made = tuple(
            Pruned(t.name, keep.folder(t.name), t.shape, t.width, t.depth, keep.best[t.name][1], keep.best[t.name][0])
            for t in targets
        )
        with arguments.main_process_first(local=False):
            if arguments.process_index == 0:
                write_result(work, mark, keep)
        return made


def pruning_arguments(training: Mapping[str, Any], work: Path, seed: int) -> TrainingArguments:
    """Options of transformers with the defaults of width pruning; those that can have no effect are refused."""
    return scored_arguments(training, work, seed, REFUSED, "width pruning")


def _mark(folder: ModelFolder, arguments: TrainingArguments, settings: PruneSettings, *examples: Sequence[Any]) -> str:
    decisive = [settings.as_json(), teacher_marks(settings), arguments.world_size]
    return fingerprint(folder.path, folder.task, arguments, *examples, decisive)


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


def _finished(work: Path, mark: str, targets: Sequence[Target]) -> tuple[Pruned, ...] | None:
    """The result of the same training if it is there."""
    found = read_result(work, mark, [target.name for target in targets])
    if found is None:
        return None
    steps = {name: int(one["step"]) for name, one in found.items()}
    made = tuple(
        Pruned(
            t.name,
            work / f"step-{steps[t.name]}" / t.name,
            t.shape,
            t.width,
            t.depth,
            score_from_json(found[t.name]["score"]),
            steps[t.name],
        )
        for t in targets
    )
    if not all((one.folder / "config.json").is_file() for one in made):
        return None
    forget_checkpoints(work)
    return made
