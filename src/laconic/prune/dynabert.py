"""`train_widths`: one elastic network trained for all widths at once, each carved where it scored best (DynaBERT)."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback

from ..artifact import sha256
from ..carve import Shape, carve, shape_of, twin
from ..engines.torch import check_finite, input_names, load_module
from ..errors import Failure, UserError
from ..families import Family, find
from ..folder import ModelFolder
from ..graphs.export import check_input_dtype, export_onnx
from ..measure.score import Score
from ..progress import SILENT, Progress
from ..train.batches import Collator, FeatureDataset
from ..train.disk import as_os_errors
from ..train.isolated import isolated
from ..train.resume import RUN, fingerprint, resume
from ..train.settings import arguments_with, steps_of
from ..train.task_trainer import ShowProgress
from .elastic import Elastic
from .elastic_trainer import ElasticTrainer
from .keep_best import RECORD, KeepBest, score_from_json, score_to_json
from .prune_only import check_labels, ordered_model
from .settings import PruneSettings, Target

DEFAULTS: dict[str, Any] = {
    "learning_rate": 5e-5,
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "save_steps": 100,
    "logging_steps": 500,
}
REFUSED = {
    "gradient_checkpointing": "Elastic widths lend their weights for one call only.",
    "auto_find_batch_size": "Name one with --per_device_train_batch_size.",
    "label_smoothing_factor": "The teacher's answers are soft already: see --distill_temperature.",
    "neftune_noise_alpha": "The student's embeddings are compared with the teacher's.",
    "torch_compile": "Elastic widths are no fixed graph.",
    "fsdp": "Processes each hold the whole model: use torchrun.",
    "deepspeed": "Processes each hold the whole model: use torchrun.",
    "eval_on_start": "A width is scored first after 'save_steps' steps.",
    "eval_steps": "Widths are scored every 'save_steps' steps.",
    "eval_delay": "Widths are scored every 'save_steps' steps.",
}
"""Training options that cannot have their effect here, and why."""
RESULT = "result.json"


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
    _check_work(work)
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
        keep = KeepBest(work, folder.task, folder.path, writes=arguments.process_index == 0)
        if begun:
            keep.load(begun / RECORD)
        dataset = FeatureDataset(folder.task, train_examples, folder.encoder, labelled=settings.label_loss > 0)
        trainer = _trainer(
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
        _train(trainer, begun, [target.name for target in targets], steps_of(arguments, len(dataset)), progress)
        made = tuple(
            Pruned(t.name, keep.folder(t.name), t.shape, t.width, t.depth, keep.best[t.name][1], keep.best[t.name][0])
            for t in targets
        )
        with arguments.main_process_first(local=False):
            if arguments.process_index == 0:
                _write_result(work, mark, made)
        return made


def _check_work(work: Path) -> None:
    """Refuse a place that holds anything but an earlier training: its content may have to go."""
    if work.exists() and (not work.is_dir() or (any(work.iterdir()) and not (work / RUN).is_file())):
        what = "The work folder holds files that no earlier training left there."
        raise UserError(what, where=str(work), hint="Name a folder that is empty or does not exist.")


def pruning_arguments(training: Mapping[str, Any], work: Path, seed: int) -> TrainingArguments:
    """Options of transformers with the defaults of width pruning; those that can have no effect are refused."""
    for name, why in REFUSED.items():
        if training.get(name):
            raise UserError(f"The '--{name}' option has no effect on width pruning.", hint=why)
    if str(training.get("save_strategy", "steps")) not in ("steps", "SaveStrategy.STEPS"):
        raise UserError("The '--save_strategy' option must be steps: widths are scored every 'save_steps' steps.")
    return arguments_with({**DEFAULTS, **training, "seed": seed}, work)


def open_teacher(model: nn.Module, family: Family, settings: PruneSettings) -> tuple[Any, Family]:
    """The teacher and its family: the model itself, or the one of the settings, which is refused if it does not fit."""
    if settings.teacher is None:
        return model, family
    where = str(settings.teacher)
    teacher = load_module(settings.teacher)
    own = find(teacher)
    theirs, ours = teacher.config, model.config
    if type(teacher).__name__.rpartition("For")[2] != type(model).__name__.rpartition("For")[2]:
        what = f"The teacher is a {type(teacher).__name__}, the model a {type(model).__name__}: their tasks differ."
        raise UserError(what, where=where)
    for name in ("vocab_size", "id2label"):
        if getattr(theirs, name) != getattr(ours, name):
            raise UserError(f"The teacher's '{name}' is not the model's.", where=where)
    layers = [len(shape_of(one, kind).layers) for one, kind in ((teacher, own), (model, family))]
    if settings.distill_hidden and (theirs.hidden_size != ours.hidden_size or layers[0] != layers[1]):
        what = (
            f"The teacher has {layers[0]} layers of {theirs.hidden_size}, the model {layers[1]} of {ours.hidden_size}"
        )
        hint = "Set --distill_hidden 0 to learn from its answers alone."
        raise UserError(f"{what}: their hidden states cannot be compared.", where=where, hint=hint)
    return teacher, own


def _mark(folder: ModelFolder, arguments: TrainingArguments, settings: PruneSettings, *examples: Sequence[Any]) -> str:
    teacher = () if settings.teacher is None else sorted(p for p in settings.teacher.iterdir() if p.is_file())
    decisive = [settings.as_json(), [sha256(path) for path in teacher], arguments.world_size]
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
                raise kind(f"{target.name}: {error.what}", where=error.where, hint=error.hint) from error
            advance(1, target.name)
            (Path(scratch) / f"{target.name}.onnx").unlink()


def _trainer(**parts: Any) -> ElasticTrainer:
    try:
        trainer = ElasticTrainer(**parts, callbacks=[ScoreAtTheEnd()])
    except ValueError as error:  # what TrainingArguments lets pass and the trainer does not, such as fp16 on a CPU
        raise UserError(f"A training option cannot be taken: {error}") from None
    trainer.remove_callback(PrinterCallback)
    return trainer


class ScoreAtTheEnd(TrainerCallback):  # type: ignore[misc]
    """Scores and saves after the last step, also of a run that is shorter than `save_steps`."""

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for both."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_save = True


def _train(trainer: ElasticTrainer, begun: Path | None, names: Sequence[str], steps: int, progress: Progress) -> None:
    try:
        with progress.track(f"train {', '.join(names)}", steps) as advance:
            trainer.add_callback(ShowProgress(advance, trainer.task.metric, names))
            with as_os_errors():
                trainer.train(resume_from_checkpoint=str(begun) if begun else None)
        check_finite(trainer.elastic.model, "the trained model")
    except (OSError, UserError) as error:
        disk = error if isinstance(error, OSError) else error.__context__  # of a folder that could not appear whole
        if not isinstance(disk, OSError):  # a rerun would only come to the same end
            shutil.rmtree(trainer.keep.work, ignore_errors=True)
            raise
        hint = "Make room and run it again: it goes on from its last checkpoint."
        where = str(trainer.keep.work)
        raise Failure(f"Writing failed: {disk.strerror or disk}.", where=where, hint=hint) from disk


def _write_result(work: Path, mark: str, made: Sequence[Pruned]) -> None:
    """Write the result whole, and only then let go of the checkpoints."""
    content = {
        "run": mark,
        "widths": {one.name: {"step": one.step, "score": score_to_json(one.score)} for one in made},
    }
    part = work / f"{RESULT}.part"
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.replace(work / RESULT)
    _forget_checkpoints(work)


def _finished(work: Path, mark: str, targets: Sequence[Target]) -> tuple[Pruned, ...] | None:
    """The result of the same training if it is there."""
    try:
        content = json.loads((work / RESULT).read_text(encoding="utf-8"))
        if content["run"] != mark:
            return None
        found = {target.name: content["widths"][target.name] for target in targets}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    made = tuple(
        Pruned(
            t.name,
            work / f"step-{found[t.name]['step']}" / t.name,
            t.shape,
            t.width,
            t.depth,
            score_from_json(found[t.name]["score"]),
            found[t.name]["step"],
        )
        for t in targets
    )
    if not all((one.folder / "config.json").is_file() for one in made):
        return None
    _forget_checkpoints(work)
    return made


def _forget_checkpoints(work: Path) -> None:
    for path in work.glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
