"""Options as command-line flags, and back with those that were really typed."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from .option import Option, options_of

Options = TypeVar("Options")
METAVARS = {str: "TEXT", int: "INT", float: "FLOAT", bool: "true|false", Fraction: "FRACTION"}


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
    for name, option in options_of(kind).items():
        if only is None or name in only:
            group.add_argument(f"--{name}", help=(helps or {}).get(name, option.help), **_form(option))


def _form(option: Option) -> dict[str, Any]:
    """How argparse takes an option. Words stay texts where the option has a reader of its own."""
    form: dict[str, Any] = {"metavar": METAVARS[option.kind]}
    if option.is_list:
        return form | {"nargs": "+", "action": "append" if option.name == "strategy" else "extend"}
    if option.kind is bool:
        return form | {"nargs": "?", "const": True, "type": truth}
    return form if option.own_reader else form | {"type": option.kind}


def typed_options(arguments: argparse.Namespace, kind: type[Any]) -> dict[str, Any]:
    """What was typed, by name.

    >>> from tersely.options.compress import CompressOptions
    >>> parser = argparse.ArgumentParser()
    >>> add_options(parser, CompressOptions)
    >>> typed_options(parser.parse_args("--strategy ptq embeddings --seed 7".split()), CompressOptions)
    {'strategy': ['ptq embeddings'], 'seed': '7'}
    """
    values = {name: getattr(arguments, name, None) for name in options_of(kind)}
    typed = {name: value for name, value in values.items() if value is not None}
    return {**typed, "strategy": strategies(typed["strategy"])} if "strategy" in typed else typed


def take(arguments: argparse.Namespace, kind: type[Options]) -> Options:
    """Make the dataclass from what was typed."""
    return kind(**typed_options(arguments, kind))


def strategies(typed: Iterable[Iterable[str]]) -> list[str]:
    """Blanks separate steps, so that the words after one flag are one strategy.

    >>> strategies([["ptq", "embeddings"], ["dynamic"]])
    ['ptq embeddings', 'dynamic']
    """
    return [" ".join(words) for words in typed]


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
