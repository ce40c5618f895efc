"""Options of dataclasses as command-line flags, and back."""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Collection
from typing import Any, TypeVar

Options = TypeVar("Options")


def add_options(parser: argparse.ArgumentParser, kind: type[Any], only: Collection[str] | None = None) -> None:
    """Give the parser a flag for each field of a dataclass of options."""
    group = parser.add_argument_group((kind.__doc__ or "").splitlines()[0].split(".")[0].lower())
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if only is not None and field.name not in only:
            continue
        type_ = _plain(hints[field.name])
        more: dict[str, Any]
        if type_ is bool:
            more = {"type": truth, "nargs": "?", "const": True, "metavar": "true|false"}
        else:
            more = {"type": type_, "metavar": type_.__name__.upper().replace("STR", "TEXT")}
        group.add_argument(f"--{field.name}", default=field.default, help=field.metadata.get("help"), **more)


def take(arguments: argparse.Namespace, kind: type[Options]) -> Options:
    """Make the dataclass from what was parsed."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(arguments, name) for name in names if hasattr(arguments, name)})


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


def _plain(hint: Any) -> type:
    """`int | None` is int."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return typing.cast(type, hint)
