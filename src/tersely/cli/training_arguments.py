"""Options of transformers' TrainingArguments as flags of the commands that train."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..errors import UserError, nearest
from . import arguments as flags

TRAINING = {
    "num_train_epochs": (float, "passes over the training rows (3)"),
    "max_steps": (int, "stop after so many steps"),
    "per_device_train_batch_size": (int, "rows a training step (8)"),
    "per_device_eval_batch_size": (int, "rows a batch when scoring (16)"),
    "gradient_accumulation_steps": (int, "batches a step (1)"),
    "learning_rate": (float, "peak learning rate (5e-5)"),
    "weight_decay": (float, "weight decay (0)"),
    "warmup_steps": (float, "steps of warm-up, or a share of all steps below 1 (0)"),
    "warmup_ratio": (float, "steps of warm-up as a share of all steps (0)"),
    "device": (str, "cpu or gpu (the best there is)"),
    "optim": (str, "adamw, sgd, adafactor … (adamw)"),
    "lr_scheduler_type": (str, "linear, cosine, constant … (linear)"),
    "save_steps": (int, "score and save every so many steps (every epoch)"),
    "logging_steps": (int, "how often the loss is taken (10)"),
    "seed": (int, "seed (42)"),
}


def add_training_options(
    parser: argparse.ArgumentParser,
    title: str = "training",
    *,
    without: Collection[str] = (),
    told: Mapping[str, str] | None = None,
) -> None:
    """Give the parser a flag for each of the usual options; `told`: help that differs from the usual."""
    group = parser.add_argument_group(title)
    for name, (kind, help_) in TRAINING.items():
        if name not in without:
            group.add_argument(f"--{name}", type=kind, help=(told or {}).get(name, help_))
    truth: dict[str, Any] = {"type": flags.truth, "nargs": "?", "const": True, "metavar": "true|false"}
    group.add_argument("--bf16", help="train in bf16, on CPUs that have it", **truth)


def take_training_options(
    arguments: argparse.Namespace, others: Iterable[str], *, without: Collection[str] = ()
) -> dict[str, Any]:
    """What was typed: the usual options, and any other of transformers'; `others`: names of options that are not its.

    What is no option of anybody's is refused, with the nearest that is.
    """
    names = [name for name in (*TRAINING, "bf16") if name not in without]
    typed = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in typed.items() if value is not None}
    return {**given, **read_more(arguments.rest, others)}


def training_names() -> list[str]:
    """All options of training: transformers' own, and the two that it has no name for."""
    from transformers import TrainingArguments

    return [*dict.fromkeys((*TRAINING, *TrainingArguments.__dataclass_fields__))]


def read_more(words: list[str], others: Iterable[str]) -> dict[str, Any]:
    """Read other options than the usual as transformers' own parser does."""
    if not words:
        return {}
    import contextlib
    import io

    from transformers import HfArgumentParser, TrainingArguments

    from ..training.isolated import isolated

    names = [word[2:].split("=")[0] for word in words if word.startswith("--")]
    known = TrainingArguments.__dataclass_fields__
    for name in names:
        if name not in known:
            hint = nearest(f"--{name}", [f"--{option}" for option in (*known, *TRAINING, *others)])
            raise UserError(f"There is no option '--{name}'.", hint=hint, option=name)
    complaint = io.StringIO()
    try:
        with isolated(), contextlib.redirect_stderr(complaint):
            (parsed,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(["--output_dir", "-", *words])
    except (SystemExit, ValueError) as error:
        last = complaint.getvalue().strip().splitlines()[-1:] or [str(error)]
        raise UserError(f"A training option cannot be taken: {last[0]}") from None
    return {name: getattr(parsed, name) for name in names}
