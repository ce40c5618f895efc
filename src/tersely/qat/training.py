"""`train_int8`: train a model to be right in INT8, and give it as a float model and the `QuantMap` of its integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import TrainingArguments, set_seed

from ..engines.torch import input_names
from ..errors import UserError
from ..measure.score import Score
from ..models.families import find
from ..models.folder import ModelFolder
from ..models.torch_folder import check_finite
from ..progress import SILENT, Progress
from ..quant_map import QuantMap
from ..quantize.samples import Samples
from ..quantize.targets import find_targets
from ..training.batches import Collator, FeatureDataset
from ..training.isolated import isolated
from ..training.keep_best import RECORD, KeepBest, score_from_json
from ..training.model_folder import save_model
from ..training.resume import digest, fingerprint, resume
from ..training.scored_run import (
    CHECKPOINTING,
    ScoreAtTheStart,
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
from .input_quantizer import LARGEST_WINDOW
from .int8_trainer import NAME, Int8Trainer
from .model import FakeQuantized
from .settings import QatSettings
from .start import find_start, first_position_only

REFUSED = {
    **dict.fromkeys(CHECKPOINTING, "Inputs would be looked at twice."),
    "neftune_noise_alpha": "Noise would widen the ranges.",
    "torch_compile": "Ranges change with every step.",
}
"""Training options that cannot have their effect here alone, and why."""
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
    folder: ModelFolder,
    proto: Any,
    samples: Samples,
    train_examples: Sequence[Any],
    eval_examples: Sequence[Any],
    work: Path,
    settings: QatSettings,
    training: Mapping[str, Any],
    *,
    skip_layers: Sequence[str] = (),
    seed: int = 42,
    progress: Progress = SILENT,
) -> Trained:
    """Train a model with the rounding of INT8 in its forward, and give it as it scored best on the eval rows.

    What it begins with, calibration alone, is scored too: training that does harm on the eval rows gives step 0.

    `proto`: the model's own graph, as `graphs.read.unfold` and maybe `keep_first_position` leave it; `samples`: rows
    that calibrate the start. `training` holds options of `transformers.TrainingArguments`; `save_steps` is how often
    the model is scored. `work` belongs to this training and stays: a run that was killed goes on from its last
    checkpoint to the same result, a finished one is given back at once, another one's leavings are removed. A step
    costs a forward of the teacher, and forward and backward of the model. The folder is read only.
    """
    check_training_rows(train_examples, eval_examples, settings)
    check_work(work)
    with isolated():
        arguments = int8_arguments(training, work, seed)
        model = folder.load()
        family = find(model) if settings.distill_hidden else None
        teacher, teacher_family = open_teacher(model, family, settings)
        targets = find_targets(proto, skip_layers=skip_layers)
        mark = _mark(folder, arguments, settings, samples, [*skip_layers], train_examples, eval_examples)
        with arguments.main_process_first(local=False):
            finished = _finished(work, mark)
            begun = None if finished else resume(work, mark, progress)
            if not finished and not (work / START).is_file():
                axis = folder.task.centred_axis
                judging = folder.task.features(eval_examples, folder.encoder)
                found = find_start(
                    model, proto, targets, samples, settings, judging, centred_axis=axis, seed=seed, progress=progress
                )
                _save_map(found, work / START)
        if finished:
            return finished
        set_seed(seed)
        dataset = FeatureDataset(folder.task, train_examples, folder.encoder, labelled=settings.label_loss > 0)
        steps = steps_of(arguments, len(dataset))
        student = FakeQuantized(
            model,
            QuantMap.load(work / START),
            targets,
            settings,
            first_only=first_position_only(proto, targets, samples),
            window=min(LARGEST_WINDOW, -(-steps // 2)),
            family=family,
        )
        keep = KeepBest(work, folder.task, _writer(folder), writes=arguments.process_index == 0)
        if begun:
            keep.load(begun / RECORD)
        trainer = make_trainer(
            Int8Trainer,
            model=student,
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
        trainer.add_callback(ScoreAtTheStart(trainer))
        run_training(trainer, begun, [NAME], steps, work, student, progress)
        with arguments.main_process_first(local=False):
            if arguments.process_index == 0:
                write_result(work, mark, keep)
        step, score = keep.best[NAME]
        place = keep.folder(NAME)
        return Trained(place, QuantMap.load(place / MAP), score, step)


def int8_arguments(training: Mapping[str, Any], work: Path, seed: int) -> TrainingArguments:
    """Options of transformers with the defaults of compression; those that can have no effect are refused."""
    return scored_arguments(training, work, seed, REFUSED, "quantization-aware training")


def check_training_rows(train: Sequence[Any], evaluation: Sequence[Any], settings: QatSettings) -> None:
    """Refuse rows that are not there, and rows without labels where labels are asked for."""
    if not train:
        raise UserError("There are no training rows for qat.", hint="Give some with --train_file.")
    if not evaluation:
        raise UserError("There are no eval rows to choose a step by.", hint="Give some with --eval_file.")
    if settings.label_loss > 0:
        for number, example in enumerate(train):
            if example.gold is None:
                what = f"Training row {number + 1} has no label, which the option 'label_loss' needs."
                raise UserError(what, hint="Without labels use --label_loss 0.")


def _writer(source: ModelFolder) -> Any:
    """What writes a fake-quantized model: in floats, and its map."""

    def write(model: FakeQuantized, place: Path) -> None:
        check_finite(model.model, "the trained model")
        quant_map = model.quant_map()
        save_model(
            model.plain(),
            place,
            dict(source.config),
            source=source.path,
            overwrite=True,
            beside=lambda inside: quant_map.save(inside / MAP),
        )

    return write


def _mark(
    folder: ModelFolder,
    arguments: TrainingArguments,
    settings: QatSettings,
    samples: Samples,
    skip_layers: Sequence[str],
    *examples: Sequence[Any],
) -> str:
    calibrates = digest([samples.features, samples.judging, samples.sets])
    decisive = [settings.as_json(), teacher_marks(settings), arguments.world_size, list(skip_layers)]
    decisive.append(calibrates)
    return fingerprint(folder.path, folder.task, arguments, *examples, decisive)


def _save_map(quant_map: QuantMap, place: Path) -> None:
    """Whole or not at all."""
    part = place.with_suffix(".part")
    quant_map.save(part)
    part.replace(place)


def _finished(work: Path, mark: str) -> Trained | None:
    """The result of the same training if it is there."""
    found = read_result(work, mark, [NAME])
    if found is None:
        return None
    step = int(found[NAME]["step"])
    place = work / f"step-{step}" / NAME
    if not (place / MAP).is_file():
        return None
    forget_checkpoints(work)
    return Trained(place, QuantMap.load(place / MAP), score_from_json(found[NAME]["score"]), step)
