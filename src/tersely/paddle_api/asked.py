"""`CompressionArguments` as what a compress run takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..options.compress import CompressOptions
from ..options.effects import trains
from ..tasks.options import TaskOptions
from ..training.arguments import DECIDED, WITHOUT_EFFECT
from . import fields
from .arguments import CompressionArguments

NOT_OF_COMPRESS = {*DECIDED, *WITHOUT_EFFECT, "output_dir", "seed", "eval_steps"}
"""Fields that `train()`, `evaluate()` or the script itself read, and compression does not."""


@dataclass(frozen=True)
class Asked:
    """Keyword arguments of `compression.story.compress`, by their names."""

    options: CompressOptions
    training: Mapping[str, Any]
    task_options: TaskOptions
    given: frozenset[str]
    overwrite: bool


def asked(arguments: CompressionArguments) -> Asked:
    """Tell apart how to compress, how to train and what the task is, as `tersely compress` does with its flags.

    Options of training count only where a strategy trains: the same arguments serve `train()`.
    """
    options, given = arguments.compress_options(), arguments.given
    set_ = {name for name in given if name in fields.COMPRESS or name == "seed"}
    if arguments.resumes is not None and "resume_from_checkpoint" in given:
        set_.add("resume_from_checkpoint")
    ours = sorted(name for name in given if name in fields.TRAINING and name not in NOT_OF_COMPRESS)
    training = {name: getattr(arguments, name) for name in ours} if trains(options.plans()) else {}
    task = {name: getattr(arguments, name) for name in fields.TASK}
    return Asked(options, training, TaskOptions(**task), frozenset(set_), bool(arguments.overwrite))
