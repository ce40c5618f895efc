"""Make a fine-tuned model small and fast, score every candidate on your rows, keep the best."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.rows import Rows
from ..options.compress import CompressOptions
from ..options.data import DataOptions
from ..options.option import typed_options
from ..options.yaml import Config
from ..tasks.options import TaskOptions
from . import arguments as flags
from . import console
from .compress_config import IDLE, put_config
from .training_arguments import add_training_options, take_training_options

if TYPE_CHECKING:
    from ..compression.request import Request

TAKES_MORE = True
"""Options that are not declared here are handed to transformers, for strategies that train."""
prepare = put_config
"""Words that were typed go through here before they are parsed."""
ACCEPTED = ("do_lower_case", "overwrite_cache")
"""Flags of PaddleNLP's scripts that mean nothing here; one is told so."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "fine-tuned transformers folder")
    parts = "where best/, candidates/, torch/ (what was pruned), result.json and report.html go"
    parser.add_argument("--output_dir", "--save_dir", required=True, metavar="DIR", help=parts)
    flags.add_overwrite(parser)
    parser.add_argument("--config", "--config_path", metavar="FILE", help="YAML file of options; what is typed wins")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(config_file=Config("no file"))
    for name in ACCEPTED:
        what = f"accepted, without effect: {IDLE[name]}"
        parser.add_argument(f"--{name}", type=flags.truth, nargs="?", const=True, metavar="true|false", help=what)
    flags.add_options(parser, CompressOptions)
    add_training_options(parser, "how dynabert and qat train", without={"seed"}, helps={})
    flags.add_options(parser, DataOptions)
    flags.add_options(parser, TaskOptions)


def run(arguments: argparse.Namespace) -> int:
    """Compress, print."""
    with arguments.config_file.blamed():
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    asked = request(arguments)
    from ..compression.report import as_json
    from ..compression.story import compress
    from .compress_table import show

    progress = console.progress()
    typed = [f"--{name} has no effect: {IDLE[name]}." for name in ACCEPTED if getattr(arguments, name) is not None]
    for note in (*arguments.config_file.notes(), *typed):
        progress.say(note)
    result = compress(asked, progress)
    if arguments.json:
        console.emit(as_json(result))
    else:
        show(result, Path(arguments.output_dir))
    result.expect_met()
    return 0


def request(arguments: argparse.Namespace) -> Request:
    """What was typed, as what a run is asked for."""
    model = flags.model(arguments)
    typed = typed_options(arguments, CompressOptions)
    options = CompressOptions(**typed)
    known = [name for kind in (CompressOptions, DataOptions, TaskOptions) for name in kind.__dataclass_fields__]
    training = take_training_options(arguments, known, without={"seed"})
    data = flags.take(arguments, DataOptions)
    task_options = flags.take(arguments, TaskOptions)
    train, dev, test = (_reader(data, split) for split in ("train", "dev", "test"))
    if train is None and dev is None and test is None:
        flags.refuse_set(data, flags.FORM_OPTIONS, "rows (--train_file, --eval_file, --test_file, --dataset)")
    from ..compression.divide import UnreadData
    from ..compression.request import Request

    return Request(
        model,
        arguments.output_dir,
        UnreadData(train, dev, test, flags.columns(data)),
        options,
        frozenset(typed),
        task_options,
        training,
        arguments.overwrite,
        command=["tersely", *arguments.typed],
    )


def _reader(data: DataOptions, split: str) -> Callable[[], Rows] | None:
    """What reads the rows of a split; a data set need not have training rows, and its test rows carry no labels."""
    named = getattr(data, flags.FILES[split]) is not None
    if data.dataset is not None and not named and split == "test":
        return None
    return flags.reader(data, split, may_lack=split == "train")
