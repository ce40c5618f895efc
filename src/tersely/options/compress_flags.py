"""Options of `tersely compress` as flags, and back with the names that were really typed."""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Collection, Iterable
from fractions import Fraction
from typing import Any

from .compress import CompressOptions
from .flags import truth

METAVARS = {str: "TEXT", int: "INT", float: "FLOAT", bool: "true|false", Fraction: "FRACTION"}
_HINTS = typing.get_type_hints(CompressOptions)


def add_compress_options(parser: argparse.ArgumentParser, *, without: Collection[str] = ()) -> None:
    """Give the parser a flag for each option; lists take several words, and a repeated flag adds to its list."""
    group = parser.add_argument_group("how a model is made smaller")
    for field in dataclasses.fields(CompressOptions):
        if field.name in without:
            continue
        kind, is_list = kind_of(field.name)
        more: dict[str, Any] = {"metavar": METAVARS[kind]}
        if field.name == "strategy":
            more |= {"nargs": "+", "action": "append"}
        elif is_list:
            more |= {"nargs": "+", "action": "extend"}
        elif kind is bool:
            more |= {"nargs": "?", "const": True, "type": truth}
        # Without a default what is absent was not typed. Values stay texts: the dataclass reads them.
        group.add_argument(f"--{field.name}", default=argparse.SUPPRESS, help=field.metadata["help"], **more)


def take_compress_options(arguments: argparse.Namespace) -> tuple[CompressOptions, frozenset[str]]:
    """Make the options from what was parsed; with them the names that were typed.

    >>> parser = argparse.ArgumentParser()
    >>> add_compress_options(parser)
    >>> options, given = take_compress_options(parser.parse_args("--strategy ptq embeddings --seed 7".split()))
    >>> options.strategy, options.seed, sorted(given)
    (('ptq embeddings',), 7, ['seed', 'strategy'])
    """
    names = [field.name for field in dataclasses.fields(CompressOptions)]
    typed = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    if "strategy" in typed:
        typed["strategy"] = strategies(typed["strategy"])
    return CompressOptions(**typed), frozenset(typed)


def strategies(typed: Iterable[Iterable[str]]) -> list[str]:
    """Blanks separate steps, so that the words after one flag are one strategy.

    >>> strategies([["ptq", "embeddings"], ["dynamic"]])
    ['ptq embeddings', 'dynamic']
    """
    return [" ".join(words) for words in typed]


def kind_of(name: str) -> tuple[Any, bool]:
    """The plain type of an option and whether it is a list.

    >>> kind_of("batch_size_list")
    (<class 'int'>, True)
    """
    return _kind(_HINTS[name])


def _kind(hint: Any) -> tuple[Any, bool]:
    """The plain type of an annotation and whether it is a list: `tuple[int, ...] | None` is a list of int."""
    if isinstance(hint, types.UnionType):
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple:
        return _kind(typing.get_args(hint)[0])[0], True
    return hint, False
