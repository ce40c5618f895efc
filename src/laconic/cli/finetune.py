"""Train an encoder on your own rows, best checkpoint kept. Any option of transformers' TrainingArguments works."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import UserError
from ..options import DataOptions, TaskOptions
from . import arguments as flags
from . import console

TAKES_MORE = True
"""Options that are not declared here are handed to transformers."""

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
    "optim": (str, "adamw, sgd, adafactor … (adamw)"),
    "lr_scheduler_type": (str, "linear, cosine, constant … (linear)"),
    "save_steps": (int, "score and save every so many steps (every epoch)"),
    "logging_steps": (int, "how often the loss is taken (10)"),
    "seed": (int, "seed (42)"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--model_name_or_path", required=True, metavar="DIR", help="transformers folder to start from")
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="where the fine-tuned model goes")
    parser.add_argument("--overwrite_output_dir", action="store_true", help="replace an earlier result")
    parser.add_argument("--max_train_rows", type=int, help="train on so many rows, drawn by seed (all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    group = parser.add_argument_group("training")
    for name, (kind, help_) in TRAINING.items():
        group.add_argument(f"--{name}", type=kind, help=help_)
    group.add_argument(
        "--bf16",
        type=flags.truth,
        nargs="?",
        const=True,
        metavar="true|false",
        help="train in bf16, on CPUs that have it",
    )
    flags.add_options(parser, DataOptions, only=set(DataOptions.__dataclass_fields__) - {"test_file"})
    flags.add_options(parser, TaskOptions)


def run(arguments: argparse.Namespace) -> int:
    """Train, print."""
    data, options = flags.take(arguments, DataOptions), flags.take(arguments, TaskOptions)
    train, evaluation = flags.needed_rows(data, "train"), flags.needed_rows(data, "dev")
    if arguments.max_train_rows is not None:
        train = flags.sample(train, arguments.max_train_rows, arguments.seed)
    training = {name: getattr(arguments, name) for name in (*TRAINING, "bf16")}
    training = {name: value for name, value in training.items() if value is not None}
    from ..train.finetune import finetune

    done = finetune(
        arguments.model_name_or_path,
        train,
        evaluation,
        arguments.output_dir,
        options=options,
        columns=flags.columns(data),
        training={**training, **_more(arguments.rest)},
        overwrite=arguments.overwrite_output_dir,
        progress=console.progress(),
    )
    scored = done.score
    if arguments.json:
        content = {"output_dir": str(done.folder), "task": done.task.name, "steps": done.steps, "metric": scored.metric}
        console.emit({**content, "score": scored.value, "interval": scored.interval, "rows": scored.rows})
        return 0
    print(f"{done.folder}: {done.task.name}, {done.steps} steps")
    print(
        f"{scored.metric} {console.points(scored.value)} ({console.interval(scored.interval)}) "
        f"on {scored.rows} eval rows, which also chose the checkpoint"
    )
    print(f"Next: laconic export --model_name_or_path {done.folder} --output_dir {done.folder}-artifact")
    return 0


def _more(words: list[str]) -> dict[str, Any]:
    """Read the other options as transformers' own parser does."""
    if not words:
        return {}
    import contextlib
    import io

    from transformers import HfArgumentParser, TrainingArguments

    names = [word[2:].split("=")[0] for word in words if word.startswith("--")]
    known = TrainingArguments.__dataclass_fields__
    for name in names:
        if name not in known:
            from ..errors import nearest

            options = [*known, *TRAINING, *DataOptions.__dataclass_fields__, *TaskOptions.__dataclass_fields__]
            hint = nearest(f"--{name}", [f"--{option}" for option in options])
            raise UserError(f"There is no option '--{name}'.", hint=hint)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            (parsed,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(["--output_dir", "-", *words])
    except (SystemExit, ValueError) as error:
        last = complaint.getvalue().strip().splitlines()[-1:] or [str(error)]
        raise UserError(f"A training option cannot be taken: {last[0]}") from None
    return {name: getattr(parsed, name) for name in names}
