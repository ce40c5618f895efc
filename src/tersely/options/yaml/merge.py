"""A file's settings as words for the parser that reads the command line, which wins.

Of a file that serves several runs, what has no effect on this one is left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ...errors import UserError, nearest, wrong_option
from ...strategy import Plan
from ..compress import CompressOptions
from ..data import DataOptions
from ..effects import touches, trains
from ..option import options_of, strategies, truth
from .document import Config, FileOption

INSTEAD: dict[str, tuple[str, ...]] = {
    "calibration_rows": ("batch_size_list", "batch_num_list"),
    **dict.fromkeys(("batch_size_list", "batch_num_list"), ("calibration_rows",)),
    "warmup_steps": ("warmup_ratio",),
    "warmup_ratio": ("warmup_steps",),
    "num_train_epochs": ("max_steps",),
    **dict.fromkeys(("train_file", "eval_file"), ("dataset",)),
    "dataset": ("train_file", "eval_file"),
    "use_cpu": ("device",),
    "device": ("use_cpu",),
}
"""An option of the command line stands in the place of other options of the file, which would contradict it."""


def which_config(
    words: Sequence[str], kind: type[argparse.ArgumentParser] = argparse.ArgumentParser
) -> argparse.Namespace:
    """Which file is meant, and which part of it, by the command line's words: config, dataset, task, strategy.

    >>> which_config(["--config", "a.yml", "--seed", "1"]).config
    'a.yml'
    """
    parser = kind(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", "--config_path")
    parser.add_argument("--dataset")
    parser.add_argument("--task")
    parser.add_argument("--strategy", nargs="+", action="append")
    return parser.parse_known_args(words)[0]


@dataclass(frozen=True)
class Flags:
    """A parser's flags by option; `check` says what else is wrong with a setting."""

    parser: argparse.ArgumentParser
    check: Callable[[FileOption], None] = lambda setting: None

    def action(self, option: str) -> argparse.Action | None:
        """What the parser does with an option; None where it does not know it."""
        found: argparse.Action | None = self.parser._option_string_actions.get(f"--{option}")
        return found

    def takes_several(self, option: str) -> bool:
        """Whether the flag takes a list; that of strategies is repeated instead."""
        action = self.action(option)
        return action is not None and action.nargs in ("+", "*") and option != "strategy"

    def named(self, words: Sequence[str]) -> set[str]:
        """The options that these words set, an alias as the option that it stands for."""
        names = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
        return {action.dest if (action := self.action(name)) else name for name in names}


def beside(config: Config, words: Sequence[str], flags: Flags) -> Config:
    """The file's options that the command line neither sets nor contradicts."""
    named = flags.named(words)
    others = {name: setting for name, setting in config.settings.items() if name not in named}
    instead = {other: f"--{name} is on the command line" for name in sorted(named) for other in INSTEAD.get(name, ())}
    return replace(config, settings=others).without(instead)


def without_idle(
    config: Config,
    strategy_words: list[list[str]] | None,
    training: Collection[str] = (),
    kind: type[CompressOptions] = CompressOptions,
) -> Config:
    """What of the file has an effect on this run; the rest is left out, and named.

    `strategy_words`: the command line's. `training`: options that have an effect only where something is trained.
    """
    plans = _plans(config, strategy_words)
    names = " or ".join(f"'{plan.name}'" for plan in plans)
    options = {**options_of(DataOptions), **options_of(kind)}
    idle = {name: f"it is nothing to {names}" for name in config.settings if not touches(name, plans, options)}
    if not trains(plans):
        idle |= {name: f"{names} trains nothing" for name in config.settings if name in training}
    return config.without(idle)


def _plans(config: Config, strategy_words: list[list[str]] | None) -> tuple[Plan, ...]:
    if strategy_words is not None:
        return CompressOptions(strategy=tuple(strategies(strategy_words))).plans()
    setting = config.settings.get("strategy")
    if setting is None:
        return CompressOptions().plans()
    try:
        return CompressOptions(strategy=setting.words).plans()
    except UserError as error:
        raise UserError(error.what, where=setting.where, hint=error.hint) from None


def as_words(config: Config, flags: Flags) -> list[str]:
    """The settings as words of a command line, each checked."""
    words: list[str] = []
    for setting in config.settings.values():
        try:
            words += _words(setting, flags)
        except UserError as error:
            raise UserError(error.what, where=setting.where, hint=error.hint) from None
    return words


def _words(setting: FileOption, flags: Flags) -> list[str]:
    flag, words, action = f"--{setting.option}", setting.words, flags.action(setting.option)
    if setting.option == "strategy":
        found = [f"{flag}={word}" for word in words]
    elif flags.takes_several(setting.option):
        if len(words) == 1:  # a text is its words, as a shell has it
            words = tuple(word for word in re.split(r"[,\s]+", words[0]) if word)
        found = [flag, *(_checked(word, setting.option, action) for word in words)]
    elif len(words) != 1:
        raise UserError(f"The '{flag}' option takes one value. Got {len(words)}.")
    elif action is not None and action.nargs == 0:
        found = [flag] if _read(truth, words[0], setting.option) else []
    else:
        found = [f"{flag}={_checked(words[0], setting.option, action)}"]
    flags.check(replace(setting, words=words))
    return found


def _checked(word: str, option: str, action: argparse.Action | None) -> str:
    """The word, if the parser will take it."""
    value = _read(action.type, word, option) if action is not None and callable(action.type) else word
    if action is not None and action.choices is not None and value not in action.choices:
        raise wrong_option(option, f"cannot be '{word}'.", hint=nearest(word, map(str, action.choices)))
    return word


def _read(type_: Callable[[str], object], word: str, option: str) -> object:
    try:
        return type_(word)
    except argparse.ArgumentTypeError as error:
        raise UserError(f"The '--{option}' option: {error}.", option=option) from None
    except (TypeError, ValueError):
        kind = {int: "a whole number", float: "a number"}.get(type_, "something else")  # type: ignore[call-overload]
        raise wrong_option(option, f"must be {kind}. Got '{word}'.") from None
