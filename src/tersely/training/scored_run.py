"""A training that scores what it makes every `save_steps`, keeps the best and survives being killed: its frame."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from ..errors import Failure, UserError, wrong_option
from ..models.torch_folder import check_finite
from ..progress import Progress
from .disk import as_os_errors
from .keep_best import KeepBest, score_to_json
from .resume import RUN
from .settings import arguments_with
from .task_trainer import ShowProgress

DEFAULTS: dict[str, Any] = {
    "learning_rate": 5e-5,
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "save_steps": 100,
    "logging_steps": 500,
}
REFUSED = {
    "auto_find_batch_size": "Name one with --per_device_train_batch_size.",
    "label_smoothing_factor": "The teacher's answers are soft already: see --distill_temperature.",
    "fsdp": "Processes each hold the whole model: use torchrun.",
    "deepspeed": "Processes each hold the whole model: use torchrun.",
    "eval_on_start": "qat always scores what it begins with; dynabert's first score is taken after 'save_steps' steps.",
    "eval_steps": "Scores are taken every 'save_steps' steps.",
    "eval_delay": "Scores are taken every 'save_steps' steps.",
}
"""Training options that can have their effect in none of these trainings, and why."""
CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
"""One option: the second is its name from transformers 5.23 on, and the first goes with version 6."""
RESULT = "result.json"


def scored_arguments(
    training: Mapping[str, Any], work: Path, seed: int, refused: Mapping[str, str], what: str
) -> TrainingArguments:
    """Options of transformers with the defaults of compression; those in `refused` are too, with their reason."""
    for name, why in {**refused, **REFUSED}.items():
        if training.get(name):
            raise wrong_option(name, f"has no effect on {what}.", hint=why)
    if str(training.get("save_strategy", "steps")) not in ("steps", "SaveStrategy.STEPS"):
        raise wrong_option("save_strategy", "must be steps: rows are scored every 'save_steps' steps.")
    return arguments_with({**DEFAULTS, **training, "seed": seed}, work)


def check_work(work: Path) -> None:
    """Refuse a place that holds anything but an earlier training: its content may have to go."""
    if work.exists() and (not work.is_dir() or (any(work.iterdir()) and not (work / RUN).is_file())):
        what = "The work folder holds files that no earlier training left there."
        raise UserError(what, where=str(work), hint="Name a folder that is empty or does not exist.")


def make_trainer(kind: Any, **parts: Any) -> Any:
    """A trainer of this kind that also scores after its last step."""
    try:
        trainer = kind(**parts, callbacks=[ScoreAtTheEnd()])
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


class ScoreAtTheStart(TrainerCallback):  # type: ignore[misc]
    """Scores and keeps what a training begins with: one that only does harm ends where it began."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A run that goes on has that score already."""
        if state.global_step == 0:
            self._trainer.evaluate()


def run_training(
    trainer: Any,
    begun: Path | None,
    names: Sequence[str],
    steps: int,
    work: Path,
    trained: nn.Module,
    progress: Progress,
) -> None:
    """Train, from a checkpoint if there is one, with progress; a full disk leaves what a later run goes on from."""
    try:
        with progress.track(f"train {', '.join(names)}", steps) as advance:
            trainer.add_callback(ShowProgress(advance, trainer.task.metric, names))
            with as_os_errors():
                trainer.train(resume_from_checkpoint=str(begun) if begun else None)
        trainer.accelerator.wait_for_everyone()  # another process may still write into the last checkpoint
        check_finite(trained, "the trained model")
    except (OSError, UserError) as error:
        disk = error if isinstance(error, OSError) else error.__context__  # of a folder that could not appear whole
        if not isinstance(disk, OSError):  # a rerun would only come to the same end
            shutil.rmtree(work, ignore_errors=True)
            raise
        hint = "Make room and run it again: it goes on from its last checkpoint."
        raise Failure(f"Writing failed: {disk.strerror or disk}.", where=str(work), hint=hint) from disk


def write_result(work: Path, mark: str, keep: KeepBest) -> None:
    """Write the best of each name whole, and only then let go of the checkpoints."""
    best = {name: {"step": step, "score": score_to_json(score)} for name, (step, score) in keep.best.items()}
    part = work / f"{RESULT}.part"
    part.write_text(json.dumps({"run": mark, "best": best}, indent=1) + "\n", encoding="utf-8")
    part.replace(work / RESULT)
    forget_checkpoints(work)


def read_result(work: Path, mark: str, names: Sequence[str]) -> dict[str, dict[str, Any]] | None:
    """Step and score by name of a finished training, if it was the same one; else None."""
    try:
        content = json.loads((work / RESULT).read_text(encoding="utf-8"))
        if content["run"] != mark:
            return None
        return {name: dict(content["best"][name]) for name in names}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget_checkpoints(work: Path) -> None:
    """Remove what only a training that is not finished needs."""
    for path in work.glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
