"""`tersely compress --config`: what a file says beside what was typed."""

from __future__ import annotations

from functools import partial

from ..options.compress import OPTIONS
from ..options.option import read_words
from ..options.yaml import Asker, FileOption, Flags, as_words, beside, read_config, which_config, without_idle
from .arguments import Parser
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
"""Keys that PaddleNLP's files and scripts have, with what to say of them."""
NOT_IN_FILES = {"config", "help", "debug", "json"}


def put_config(parser: Parser, words: list[str]) -> list[str]:
    """Put what the file says in front of the options typed; the parser remembers the file, for messages and notes."""
    typed = which_config(words, type(parser))
    if typed.config is None:
        return words
    flags = Flags(parser, partial(_check, parser))
    training = training_names()
    names = {name[2:]: action.dest for action in parser._actions for name in action.option_strings}
    taken = {option for option in names.values() if option not in NOT_IN_FILES}
    aliases = {name: option for name, option in names.items() if name != option and option in taken}
    asker = Asker(sorted({*taken, *training}), IDLE, typed.dataset, typed.task, aliases=aliases)
    apart = parser.take_apart(words)
    options = [*apart.known, *apart.unknown]
    model = ["--model_name_or_path"] if apart.places else []  # typed as a word of its own
    config = beside(read_config(typed.config, asker), [*model, *options], flags)
    config = without_idle(config, typed.strategy, set(training) - OPTIONS.keys() - {"output_dir"})
    parser.set_defaults(config_file=config)
    return [*apart.places, *as_words(config, flags), *options]


def _check(parser: Parser, setting: FileOption) -> None:
    """Say what is wrong with a value while its place in the file is known."""
    name, words = setting.option, setting.words
    if name in OPTIONS:
        read_words(OPTIONS[name], words)
    elif f"--{name}" not in parser._option_string_actions:
        read_more([f"--{name}", *words], ())
