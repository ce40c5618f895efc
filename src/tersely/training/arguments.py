"""Options of transformers' `TrainingArguments`: which a training takes, between which bounds, with which defaults."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from ..engines.cpu import cpu
from ..errors import UserError, nearest, wrong_option

DECIDED = {
    "eval_strategy": "Rows are scored whenever a checkpoint is saved: see --save_strategy.",
    "load_best_model_at_end": "The best checkpoint is always kept.",
    "metric_for_best_model": "Use --metric.",
    "greater_is_better": "The metric says so itself: see --metric.",
    "save_total_limit": "The best and the last checkpoint are kept until the end.",
    "save_only_model": "A run that was killed needs the rest to go on.",
    "resume_from_checkpoint": "A run that was killed goes on by itself when it is started again.",
    "disable_tqdm": "Progress is shown in its own way.",
    "remove_unused_columns": "Columns are named with --text_column and the like.",
    "do_train": "It always trains.",
    "do_eval": "It always scores the eval rows.",
    "do_predict": "Use tersely predict.",
    "push_to_hub": "Nothing leaves this machine.",
}
"""Options that fine-tuning decides for itself, with what to tell who sets one."""
WITHOUT_EFFECT = {
    "prediction_loss_only", "eval_do_concat_batches", "eval_use_gather_object", "eval_accumulation_steps",
    "include_for_metrics", "batch_eval_metrics", "bf16_full_eval", "fp16_full_eval", "label_names",
    "length_column_name", "train_sampling_strategy", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy",
    "hub_always_push", "hub_revision",
}  # fmt: skip
"""Options of parts of the trainer that are not used here."""
BATCH_SIZES = ("per_device_train_batch_size", "per_device_eval_batch_size")
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(BATCH_SIZES, 8),
    "learning_rate": 5e-5,
    "num_train_epochs": 3.0,
    "save_steps": 100,
    "logging_steps": 500,
}
"""Of trainings from a teacher."""
REFUSED = {
    "auto_find_batch_size": "Name one with --per_device_train_batch_size.",
    "label_smoothing_factor": "The teacher's answers are soft already: see --distill_temperature.",
    "fsdp": "Processes each hold the whole model: use torchrun.",
    "deepspeed": "Processes each hold the whole model: use torchrun.",
    "eval_on_start": "qat always scores what it begins with; dynabert's first score is taken after 'save_steps' steps.",
    "eval_steps": "Scores are taken every 'save_steps' steps.",
    "eval_delay": "Scores are taken every 'save_steps' steps.",
}
"""Options that can have no effect on a training from a teacher, and why."""
CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
"""One option: the second is its name from transformers 5.23 on, and the first goes with version 6."""
SEEDS, MAX_SEED = ("seed", "data_seed"), 2**32 - 1
NOT_NEGATIVE = (*SEEDS, "weight_decay", "warmup_steps", "warmup_ratio", "max_grad_norm")
BOUNDS: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
    ((*BATCH_SIZES, "gradient_accumulation_steps", "logging_steps", "save_steps"), lambda x: x >= 1, "be at least 1"),
    (("num_train_epochs", "learning_rate"), lambda x: x > 0, "be above 0"),
    (NOT_NEGATIVE, lambda x: x >= 0, "not be negative"),
    (SEEDS, lambda x: x <= MAX_SEED, f"be at most {MAX_SEED}"),
)
"""Of some options: what their values must be, in words too."""
DEVICES = ("cpu", "gpu", "cuda")


class DeviceWarning(UserWarning):
    """The device that was asked for is not there."""


def arguments_with(training: Mapping[str, Any], work: Path, **decided: Any) -> TrainingArguments:
    """Put the options together with what a training decides for itself."""
    settings = {"per_device_eval_batch_size": 16, "logging_steps": 10, **checked(training)}
    if settings.get("bf16") and not cpu().bf16 and not torch.cuda.is_available():
        what = f"needs a CPU with bf16 instructions; this one ({cpu().name}) has none."
        raise wrong_option("bf16", what, hint="Leave it out: without them bf16 is slower than FP32.")
    every = settings.get("save_steps")
    usual = {"save_strategy": "epoch" if every is None else "steps", "eval_steps": every, "use_cpu": use_cpu(None)}
    settings = {**usual, "dataloader_pin_memory": False, "report_to": [], **settings}
    decided |= {"save_total_limit": 1, "disable_tqdm": True, "remove_unused_columns": False}
    try:
        return TrainingArguments(output_dir=str(work), eval_strategy=settings["save_strategy"], **decided, **settings)
    except (TypeError, ValueError) as error:
        raise UserError(f"A training option cannot be taken: {error}") from None


def distillation_arguments(
    training: Mapping[str, Any], work: Path, seed: int, refused: Mapping[str, str], what: str
) -> TrainingArguments:
    """Options of a training from a teacher, with its defaults. `refused`: further ones without effect on this one."""
    for name, why in {**refused, **REFUSED}.items():
        if training.get(name):
            raise wrong_option(name, f"has no effect on {what}.", hint=why)
    if str(training.get("save_strategy", "steps")) not in ("steps", "SaveStrategy.STEPS"):
        raise wrong_option("save_strategy", "must be steps: rows are scored every 'save_steps' steps.")
    return arguments_with({**DEFAULTS, **training, "seed": seed}, work)


def steps_of(arguments: TrainingArguments, rows: int) -> int:
    """How many steps a run will take."""
    if arguments.max_steps > 0:
        return int(arguments.max_steps)
    batches = -(-rows // (arguments.per_device_train_batch_size * arguments.world_size))
    steps: int = math.ceil(-(-batches // arguments.gradient_accumulation_steps) * arguments.num_train_epochs)
    return steps


def checked(training: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse what would have no effect or cannot be; translate what transformers has no name for.

    >>> checked({"warmup_ratio": 0.1, "optim": "adamw", "device": "cpu"})
    {'warmup_steps': 0.1, 'use_cpu': True}
    """
    for name in training:
        if name in DECIDED or name in WITHOUT_EFFECT:
            raise wrong_option(name, "has no effect here.", hint=DECIDED.get(name, "Leave it out."))
    return translated(training)


def translated(training: Mapping[str, Any]) -> dict[str, Any]:
    """Check bounds; put `warmup_ratio`, the optimizer `adamw` and `device` as transformers has them."""
    settings = dict(training)
    for name, value in settings.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            _check(name, value)
    if settings.get("max_steps") == 0:
        raise wrong_option("max_steps", "must be at least 1. Got 0.")
    if settings.get("optim") == "adamw":
        del settings["optim"]  # the trainer's own choice is the fastest form of it
    if (ratio := settings.pop("warmup_ratio", None)) is not None:
        if ratio >= 1 or (ratio and settings.get("warmup_steps")):
            raise wrong_option("warmup_ratio", "is a share below 1, without --warmup_steps.")
        settings["warmup_steps"] = settings.get("warmup_steps") or ratio
    if (device := settings.pop("device", None)) is not None:
        settings["use_cpu"] = use_cpu(device)
    return settings


def use_cpu(device: Any) -> bool:
    """Whether `device` is the CPU: `cpu`, `gpu` or `cuda`, `gpu:0`; None: the best there is. Without a GPU it warns."""
    if device is None:
        return not torch.cuda.is_available()
    kind, _, number = str(device).lower().partition(":")
    if kind not in DEVICES:
        raise wrong_option("device", f"cannot be '{device}'.", hint=nearest(kind, DEVICES))
    if number not in ("", "0"):
        hint = "Choose among several with the environment variable CUDA_VISIBLE_DEVICES."
        raise wrong_option("device", f"is cpu or gpu, without a number. Got '{device}'.", hint=hint)
    if kind != "cpu" and not torch.cuda.is_available():
        warnings.warn(f"There is no GPU for '--device {device}': the CPU is used.", DeviceWarning, stacklevel=2)
        return True
    return kind == "cpu"


def _check(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise wrong_option(name, f"must be a number. Got {value}.")
    for names, fits, expected in BOUNDS:
        if name in names and not fits(value):
            raise wrong_option(name, f"must {expected}. Got {value}.")
