"""Train an encoder on your own rows, best checkpoint kept. Any option of transformers' TrainingArguments works."""

from __future__ import annotations

import argparse

from ..measure.tables import interval, points
from ..options.data import DataOptions
from ..tasks.options import TaskOptions
from . import arguments as flags
from . import console
from .training_arguments import add_training_options, take_training_options

TAKES_MORE = True
"""Options that are not declared here are passed to transformers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "transformers folder to start from")
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="where the fine-tuned model goes")
    flags.add_overwrite(parser)
    parser.add_argument("--max_train_rows", type=int, help="train on so many rows, drawn by seed (all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_training_options(parser)
    flags.add_options(
        parser, DataOptions, only=set(DataOptions.__dataclass_fields__) - {"test_file", "unlabelled_file"}
    )
    flags.add_options(parser, TaskOptions)


def run(arguments: argparse.Namespace) -> int:
    """Train, print."""
    model = flags.needed_model(arguments)
    train, evaluation = flags.needed_reader(arguments, "train"), flags.needed_reader(arguments, "dev")
    others = (*DataOptions.__dataclass_fields__, *TaskOptions.__dataclass_fields__)
    training = take_training_options(arguments, others)
    from ..training.call import finetune

    done = finetune(
        model,
        output_dir=arguments.output_dir,
        train_file=train,
        eval_file=evaluation,
        max_train_rows=arguments.max_train_rows,
        training_args=training,
        overwrite=arguments.overwrite,
        progress=True,
        **flags.shared(arguments),
    )
    scored = done.score
    if arguments.json:
        content = {"output_dir": str(done.folder), "task": done.task.name, "steps": done.steps, "metric": scored.metric}
        console.emit({**content, "score": scored.value, "interval": scored.interval, "rows": scored.rows})
        return 0
    print(f"{done.folder}: {done.task.name}, {done.steps} steps")
    print(
        f"{scored.metric} {points(scored.value)} ({interval(scored.interval)}) "
        f"on {scored.rows} eval rows, which also chose the checkpoint"
    )
    print(f"Next: tersely export {done.folder} --output_dir {done.folder}-artifact")
    return 0
