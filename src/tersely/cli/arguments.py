"""The parser of a subcommand, the flags that most commands share, and the model and rows that they name."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from ..data import Rows, find_split, locate, read, read_dataset
from ..errors import UserError, existing, nearest, refuse_idle, wrong_option
from ..options.data import DataOptions
from ..options.option import add_options, take, truth
from ..tasks import Columns
from ..tasks.options import TaskOptions

__all__ = ["add_options", "take", "truth"]

FILES = {"train": "train_file", "dev": "eval_file", "test": "test_file"}
COLUMN_OPTIONS = [f"{column.name}_column" for column in dataclasses.fields(Columns)]
FORM_OPTIONS = {"header", *COLUMN_OPTIONS}
EVAL_OPTIONS = {"eval_file", "dataset", "data_dir", *FORM_OPTIONS}

NUMBER = re.compile(r"-\d*\.?\d+(e[+-]?\d+)?", re.IGNORECASE)
TAKES: dict[Any, float] = {None: 1, 0: 0, "?": 1, "*": math.inf, "+": math.inf}
"""How many words an option takes at most, by argparse's `nargs`."""


@dataclass(frozen=True)
class Words:
    """A command line taken apart: words of no option, options with their words, unknown options with theirs."""

    places: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class Parser(argparse.ArgumentParser):
    """Takes words of no option before, between and after options; raises what is wrong instead of printing it.

    An option that it does not know keeps the words after it: they are its values, never a model or a file.
    """

    def take_apart(self, words: Sequence[str]) -> Words:
        """Tell apart what belongs to which option, and what to none."""
        found = Words()
        into, room = found.places, 0.0
        for index, word in enumerate(words):
            if word == "--":
                found.places.extend(words[index + 1 :])
                break
            if is_option(word):
                name, equals, _ = word.partition("=")
                action = self._option_string_actions.get(name)
                into = found.unknown if action is None else found.known
                room = 0 if equals else math.inf if action is None else TAKES.get(action.nargs, 1)
                into.append(word)
            elif room > 0:
                into.append(word)
                room -= 1
            else:
                found.places.append(word)
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse; words that belong to nothing come back, then unknown options with theirs."""
        words = self.take_apart(sys.argv[1:] if args is None else args)
        # In front of all options: Python before 3.12.7 fills an optional place with nothing at the first option.
        arguments, strays = super().parse_known_args([*words.places, *words.known], namespace)
        return arguments, [*strays, *words.unknown]

    def refuse(self, rest: Sequence[str], *, but_options: bool = False) -> None:
        """Say which word means nothing here, if any; `but_options`: options that are not known are for others."""
        if not rest or (but_options and is_option(rest[0])):
            return
        word = rest[0].partition("=")[0]
        hint = f"See: {self.prog} --help"
        if not is_option(word):
            raise UserError(f"The word '{rest[0]}' belongs to no option.", hint=hint)
        known = [option for action in self._actions for option in action.option_strings]
        raise UserError(f"There is no option '{word}'.", hint=nearest(word, known) if len(known) < 60 else hint)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise UserError(message[0].upper() + message[1:].rstrip(".") + ".", hint=f"See: {self.prog} --help")

    def usage_line(self) -> str:
        """The command, what it is given, and the options that it cannot do without; the others are listed below."""
        places = [str(action.metavar) for action in self._actions if not action.option_strings]
        options = [action for action in self._actions if action.option_strings and action.required]
        needed = [f"{action.option_strings[0]} {action.metavar}" for action in options]
        return " ".join([self.prog, *places, *needed, "[options]"])


def is_option(word: str) -> bool:
    """Whether a word names an option: `-1` is a number, `-` standard input.

    >>> is_option("--seed=1"), is_option("-h"), is_option("-1e-5"), is_option("-"), is_option("model")
    (True, True, False, False, False)
    """
    return word.startswith("-") and word != "-" and not NUMBER.fullmatch(word) and " " not in word.partition("=")[0]


def add_model(
    parser: argparse.ArgumentParser, help: str, *, several: bool = False, needed: bool = True, also: Sequence[str] = ()
) -> None:
    """Declare the model, or several: a word of its own, or `--model_name_or_path`; `also`: further flags of it."""
    shown = "MODEL [MODEL …]" if several else "MODEL" if needed else "[MODEL]"
    parser.add_argument("model", nargs="*" if several else "?", default=None, metavar=shown, help=help)
    flags = ("--model_name_or_path", *also)
    words = "+" if several else None
    parser.add_argument(*flags, dest="model_name_or_path", nargs=words, metavar="MODEL", help="the same as MODEL")


def model(arguments: argparse.Namespace) -> Any:
    """The model that was named, or the list of several, in either way; nothing where none was."""
    word, flag = arguments.model, arguments.model_name_or_path
    if word and flag and word != flag:
        both = [" ".join(value) if isinstance(value, list) else value for value in (word, flag)]
        what = f"Two models are named: '{both[0]}', and '{both[1]}' with --model_name_or_path."
        raise UserError(what, hint="Name it once.")
    return word or flag


def needed_model(arguments: argparse.Namespace) -> Any:
    """The model that the command cannot do without, or the list of several."""
    found = model(arguments)
    if not found:
        raise UserError("A model is needed.", hint=f"Write: tersely {arguments.command_line[0]} MODEL …")
    return found


def add_overwrite(parser: argparse.ArgumentParser, help: str = "replace an earlier result") -> None:
    """Declare the flag that lets a command replace what it wrote before."""
    parser.add_argument("--overwrite", "--overwrite_output_dir", action="store_true", help=help)


def add_rows_and_task(parser: argparse.ArgumentParser, names: Collection[str]) -> None:
    """Declare `--json`, the options of rows that are named, and those of the task."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_options(parser, DataOptions, only=names)
    add_options(parser, TaskOptions)


def shared(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of the task and the names of columns, as the public functions take them."""
    names = [*TaskOptions.__dataclass_fields__, *COLUMN_OPTIONS]
    return {name: getattr(arguments, name) for name in names}


def columns(options: DataOptions) -> Columns:
    """The columns that were named."""
    names = [field.name for field in dataclasses.fields(Columns)]
    return Columns(**{name: getattr(options, f"{name}_column") for name in names})


def reader(options: DataOptions, split: str, *, may_lack: bool = False) -> Callable[[], Rows] | None:
    """What reads the rows of a split; a file or a data set that is not there is refused at once.

    `may_lack`: None also where the data set has no such split.
    """
    file = getattr(options, FILES[split])
    if options.dataset is None:
        refuse_set(options, {"data_dir"}, "--dataset")
    if file is not None:
        return partial(read, existing(file, "file"), header=options.header)
    if options.dataset is not None:
        refuse_set(options, {"header"}, f"--{FILES[split]}")
        if may_lack and find_split(locate(options.dataset, options.folder()), split) is None:
            return None
        return partial(read_dataset, options.dataset, split, options.folder())
    return None


def needed_reader(arguments: argparse.Namespace, split: str) -> Callable[[], Rows]:
    """What reads the rows of a split that the command cannot do without."""
    found = reader(take(arguments, DataOptions), split)
    if found is None:
        raise wrong_option(FILES[split], "is needed.", hint="Or name a data set with --dataset.")
    return found


def refuse_set(options: Any, names: Collection[str], needed: str) -> None:
    """Refuse options that mean nothing without another one."""
    refuse_idle(vars(options), names, needed)
