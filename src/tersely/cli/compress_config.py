"""`tersely compress --config`: what a file says in front of what was typed."""

from __future__ import annotations

import argparse
from functools import partial

from ..compression.config import look, without_idle
from ..compression.flags import kind_of
from ..compression.options import CompressOptions, read_option
from ..config import Asker, Flags, Setting, as_words, beside, read_config
from ..flags import truth
from .training_arguments import read_more, training_names

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
"""Keys that the reference's files and scripts have, with what to say of them."""
NOT_IN_FILES = {"config", "help", "debug", "json"}
OPTIONS = CompressOptions.__dataclass_fields__


def put_config(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """Put what the file says in front of what was typed; the parser remembers the file, for messages and notes."""
    typed = look(words, type(parser))
    if typed.config is None:
        return words
    flags = Flags(parser, partial(_check, parser))
    training = training_names()
    taken = {action.dest for action in parser._actions if action.option_strings} - NOT_IN_FILES
    config = read_config(typed.config, Asker(sorted({*taken, *training}), IDLE, typed.dataset, typed.task))
    config = without_idle(beside(config, words, flags), typed.strategy, set(training) - OPTIONS.keys() - {"output_dir"})
    parser.set_defaults(config_file=config)
    return [*as_words(config, flags), *words]


def _check(parser: argparse.ArgumentParser, setting: Setting) -> None:
    """Say what is wrong with a value while its place in the file is known."""
    name, words = setting.option, setting.words
    if name in OPTIONS:
        kind, several = kind_of(name)
        read_option(name, words if several else truth(words[0]) if kind is bool else words[0])
    elif f"--{name}" not in parser._option_string_actions:
        read_more([f"--{name}", *words], ())
