"""`Option`: all that is known of one option, declared once as a field of a dataclass; its flag on a command line.

Flags, YAML files, `tersely.compress`, `CompressionArguments`, checks, `result.json` and the docs come from it.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, Literal, TypeVar

from ..tasks.options import option
from .readers import Reader, integer, number, one_of, text, yes_or_no

__all__ = [
    "Option",
    "add_options",
    "option",
    "options_in",
    "options_of",
    "read_words",
    "strategies",
    "take",
    "truth",
    "underscored",
]

Options = TypeVar("Options")
UNIONS = (types.UnionType, typing.Union)
METAVARS = {str: "TEXT", int: "INT", float: "FLOAT", bool: "true|false", Fraction: "FRACTION"}


@dataclasses.dataclass(frozen=True)
class Option:
    """One option, as its field declares it.

    `type`: what a read value is; a `Literal` has closed choices, a tuple is a list. `own_reader`: what reads it, where
    the type, with `least` for whole numbers, does not say that. `steps`: the steps that it has an effect on (none: on
    all of them), and `idle`: the value that is true of all other steps anyway. `default_text`: the default in words.
    """

    name: str
    type: Any
    default: Any
    what: str
    own_reader: Reader | None = None
    least: int | None = None
    steps: tuple[str, ...] = ()
    idle: Any = None
    default_text: str = ""

    @property
    def help(self) -> str:
        """What it means, and the default in brackets."""
        return f"{self.what} ({self.default_text})" if self.default_text else self.what

    @property
    def is_list(self) -> bool:
        """Whether it has several values."""
        return typing.get_origin(_without_none(self.type)) is tuple

    @property
    def element(self) -> Any:
        """The type of a value, or of each in a list."""
        inner = _without_none(self.type)
        return _without_none(typing.get_args(inner)[0]) if self.is_list else inner

    @property
    def kind(self) -> Any:
        """The plain type that a value has as a word: `str`, `int`, `float`, `bool` or `Fraction`."""
        return str if typing.get_origin(self.element) in (*UNIONS, Literal) else self.element

    @property
    def read(self) -> Reader:
        """What makes a value of what a command line, a file or Python gives, or refuses it; made when it is needed."""
        if self.own_reader is not None:
            return self.own_reader
        if typing.get_origin(self.element) is Literal:
            return one_of(*typing.get_args(self.element))
        return {bool: yes_or_no, int: integer(self.least), float: number()}.get(self.element, text)

    def value(self, unread: Any) -> Any:
        """Read a value; None stands for itself where it is the default."""
        return None if unread is None and self.default is None else self.read(self.name, unread)

    def acts_on(self, steps: typing.Collection[str]) -> bool:
        """Whether it has an effect on any of these steps."""
        return not self.steps or not set(self.steps).isdisjoint(steps)


def options_of(kind: Any) -> Mapping[str, Option]:
    """The options that a dataclass declares, by name.

    >>> from tersely.tasks.options import TaskOptions
    >>> length = options_of(TaskOptions)["max_seq_length"]
    >>> length.kind, length.is_list, length.value("128")
    (<class 'int'>, False, 128)
    """
    return _options_of(kind)


@cache
def _options_of(kind: Any) -> Mapping[str, Option]:
    hints = typing.get_type_hints(kind)
    return {field.name: _option(field, hints[field.name]) for field in dataclasses.fields(kind)}


def _option(field: Any, hint: Any) -> Option:
    declared = dict(field.metadata)
    default_text = declared.pop("default_text", "" if field.default is None else shown(field.default))
    what, own = declared.pop("help").removesuffix(f" ({default_text})"), declared.pop("read", None)
    return Option(field.name, hint, field.default, what, own, default_text=default_text, **declared)


def shown(value: Any) -> str:
    """A value as it would be written on the command line.

    >>> shown(("mse", "KL")), shown(True), shown(1.0), shown(())
    ('mse KL', 'true', '1', 'none')
    """
    if isinstance(value, tuple):
        return " ".join(map(shown, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def add_options(
    parser: argparse.ArgumentParser,
    kind: type[Any],
    only: Collection[str] | None = None,
    *,
    title: str | None = None,
    helps: Mapping[str, str] | None = None,
) -> None:
    """Give the parser a flag for each option; lists take several words, and a repeated flag adds to its list.

    `title`: of the group of flags, else what the dataclass says of itself. `helps`: other help texts.
    """
    group = parser.add_argument_group(title or (kind.__doc__ or "").splitlines()[0].split(".")[0].lower())
    for name, declared in options_of(kind).items():
        if only is None or name in only:
            group.add_argument(f"--{name}", help=(helps or {}).get(name, declared.help), **_form(declared))


def _form(option: Option) -> dict[str, Any]:
    """How argparse takes an option. Words stay texts where the option has a reader of its own."""
    form: dict[str, Any] = {"metavar": METAVARS[option.kind]}
    if option.is_list:
        return form | {"nargs": "+", "action": "append" if option.name == "strategy" else "extend"}
    if option.kind is bool:
        return form | {"nargs": "?", "const": True, "type": truth}
    return form if option.own_reader else form | {"type": option.kind}


def options_in(arguments: argparse.Namespace, kind: type[Any]) -> dict[str, Any]:
    """The options of a dataclass that were set on the command line, by name.

    >>> from tersely.options.compress import CompressOptions
    >>> parser = argparse.ArgumentParser()
    >>> add_options(parser, CompressOptions)
    >>> options_in(parser.parse_args("--strategy ptq embeddings --seed 7".split()), CompressOptions)
    {'strategy': ['ptq embeddings'], 'seed': '7'}
    """
    values = {name: getattr(arguments, name, None) for name in options_of(kind)}
    found = {name: value for name, value in values.items() if value is not None}
    return {**found, "strategy": strategies(found["strategy"])} if "strategy" in found else found


def take(arguments: argparse.Namespace, kind: type[Options]) -> Options:
    """Make the dataclass from what was set on the command line."""
    return kind(**options_in(arguments, kind))


def strategies(flags: Iterable[Iterable[str]]) -> list[str]:
    """Blanks separate steps, so that the words after one flag are one strategy.

    >>> strategies([["ptq", "embeddings"], ["dynamic"]])
    ['ptq embeddings', 'dynamic']
    """
    return [" ".join(words) for words in flags]


def read_words(option: Option, words: Sequence[str]) -> Any:
    """The value that words after an option's flag stand for."""
    return option.value(words if option.is_list else truth(words[0]) if option.kind is bool else words[0])


def truth(word: str) -> bool:
    """Read yes or no in its usual spellings.

    >>> truth("Yes"), truth("0")
    (True, False)
    """
    if word.lower() in ("yes", "true", "t", "y", "1"):
        return True
    if word.lower() in ("no", "false", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, got '{word}'")


def underscored(word: str) -> str:
    """Options may be written with hyphens or underscores; values after `=` stay as they are.

    >>> underscored("--eval-file=my-rows.tsv"), underscored("my-rows.tsv")
    ('--eval_file=my-rows.tsv', 'my-rows.tsv')
    """
    if not word.startswith("--"):
        return word
    name, equals, value = word[2:].partition("=")
    return f"--{name.replace('-', '_')}{equals}{value}"


def _without_none(hint: Any) -> Any:
    """`int | None` is int."""
    if typing.get_origin(hint) not in UNIONS:
        return hint
    parts = tuple(part for part in typing.get_args(hint) if part is not type(None))
    return parts[0] if len(parts) == 1 else typing.Union[parts]  # noqa: UP007 - made of a tuple
