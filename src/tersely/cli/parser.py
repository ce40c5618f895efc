"""The parser of a subcommand: words in any order, and one line for what cannot be."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..errors import UserError, nearest

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

    def refuse(self, rest: Sequence[str]) -> NoReturn:
        """Say which word means nothing here."""
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
