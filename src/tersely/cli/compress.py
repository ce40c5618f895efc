"""Make a fine-tuned model small and fast, score every candidate on your rows, keep the best."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..data import texts_of
from ..data.rows import Rows
from ..errors import existing
from ..options.compress import OPTIONS, CompressOptions
from ..options.data import DataOptions
from ..options.option import options_in, read_words
from ..options.yaml import Asker, Config, FileOption, Flags, as_words, beside, read_config, which_config, without_idle
from ..tasks.options import TaskOptions
from . import arguments as flags
from . import console
from .arguments import Parser
from .training_arguments import add_training_options, read_more, take_training_options, training_names

if TYPE_CHECKING:
    from ..compression.request import Request

TAKES_MORE = True
"""Options that are not declared here are passed to transformers, for strategies that train."""
ACCEPTED = ("do_lower_case", "overwrite_cache")
"""Flags of PaddleNLP's scripts that mean nothing here; a note says so."""
SCRIPTS = "scripts read it; the command always compresses"
IDLE = {
    **dict.fromkeys(("do_train", "do_eval", "do_predict", "do_compress", "do_export"), SCRIPTS),
    **dict.fromkeys(("eval_steps", "minimum_eval_times"), "widths are scored every save_steps steps"),
    "do_lower_case": "the model's tokenizer says so itself",
    "overwrite_cache": "nothing is cached",
    "preprocessing_num_workers": "rows are read in one go",
    "export_model_dir": "results go to output_dir",
    "remove_unused_columns": "columns are named with --text_column and the like",
    "dynamic_max_length": "batches are as long as their longest row",
}
"""Keys that PaddleNLP's files and scripts have, with what to say of them."""
NOT_IN_FILES = {"config", "help", "debug", "json"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "fine-tuned transformers folder")
    parts = "where best/, candidates/, torch/ (what was pruned), result.json and report.html go"
    parser.add_argument("--output_dir", "--save_dir", required=True, metavar="DIR", help=parts)
    flags.add_overwrite(parser)
    parser.add_argument("--config", "--config_path", metavar="FILE", help="YAML file of options; the command line wins")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(config_file=Config("no file"))
    for name in ACCEPTED:
        what = f"accepted, without effect: {IDLE[name]}"
        parser.add_argument(f"--{name}", type=flags.truth, nargs="?", const=True, metavar="true|false", help=what)
    flags.add_options(parser, CompressOptions)
    add_training_options(parser, "how dynabert and qat train", without={"seed"}, helps={})
    flags.add_options(parser, DataOptions)
    flags.add_options(parser, TaskOptions)


def prepare(parser: Parser, words: list[str]) -> list[str]:
    """Put the file's options before those of the command line; the parser keeps the file, for messages and notes."""
    args = which_config(words, type(parser))
    if args.config is None:
        return words
    flags = Flags(parser, partial(_check_setting, parser))
    training = training_names()
    names = {name[2:]: action.dest for action in parser._actions for name in action.option_strings}
    taken = {option for option in names.values() if option not in NOT_IN_FILES}
    aliases = {name: option for name, option in names.items() if name != option and option in taken}
    asker = Asker(sorted({*taken, *training}), IDLE, args.dataset, args.task, aliases=aliases)
    apart = parser.take_apart(words)
    options = [*apart.known, *apart.unknown]
    model = ["--model_name_or_path"] if apart.places else []  # given as a word of its own
    config = beside(read_config(args.config, asker), [*model, *options], flags)
    config = without_idle(config, args.strategy, set(training) - OPTIONS.keys() - {"output_dir"})
    parser.set_defaults(config_file=config)
    return [*apart.places, *as_words(config, flags), *options]


def run(arguments: argparse.Namespace) -> int:
    """Compress, print."""
    with arguments.config_file.blamed():
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    to_run = request(arguments)
    from ..compression.report import as_json
    from ..compression.story import compress
    from .compress_table import show

    progress = console.progress()
    ignored = [f"--{name} has no effect: {IDLE[name]}." for name in ACCEPTED if getattr(arguments, name) is not None]
    for note in (*arguments.config_file.notes(), *ignored):
        progress.say(note)
    result = compress(to_run, progress)
    if arguments.json:
        console.emit(as_json(result))
    else:
        show(result, Path(arguments.output_dir))
    result.expect_met()
    return 0


def request(arguments: argparse.Namespace) -> Request:
    """The command line as the request of a run."""
    model = flags.model(arguments)
    chosen = options_in(arguments, CompressOptions)
    options = CompressOptions(**chosen)
    known = [name for kind in (CompressOptions, DataOptions, TaskOptions) for name in kind.__dataclass_fields__]
    training = take_training_options(arguments, known, without={"seed"})
    data = flags.take(arguments, DataOptions)
    task_options = flags.take(arguments, TaskOptions)
    train, dev, test = (_reader(data, split) for split in ("train", "dev", "test"))
    unlabelled = None
    if data.unlabelled_file is not None:
        unlabelled = partial(texts_of, existing(data.unlabelled_file, "file"), data.header)
    if train is None and dev is None and test is None and unlabelled is None:
        flags.refuse_set(data, flags.FORM_OPTIONS, "rows (--train_file, --eval_file, --test_file, --dataset)")
    from ..compression.divide import UnreadData
    from ..compression.request import Request

    return Request(
        model,
        arguments.output_dir,
        UnreadData(train, dev, test, flags.columns(data), unlabelled),
        options,
        frozenset(chosen),
        task_options,
        training,
        arguments.overwrite,
        command=["tersely", *arguments.command_line],
    )


def _reader(data: DataOptions, split: str) -> Callable[[], Rows] | None:
    """What reads the rows of a split; a data set need not have training rows, and its test rows carry no labels."""
    named = getattr(data, flags.FILES[split]) is not None
    if data.dataset is not None and not named and split == "test":
        return None
    return flags.reader(data, split, may_lack=split == "train")


def _check_setting(parser: Parser, setting: FileOption) -> None:
    """Say what is wrong with a value while its place in the file is known."""
    name, words = setting.option, setting.words
    if name in OPTIONS:
        read_words(OPTIONS[name], words)
    elif f"--{name}" not in parser._option_string_actions:
        read_more([f"--{name}", *words], ())
