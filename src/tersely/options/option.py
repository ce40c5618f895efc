"""`Option`: all that is known of one option. It is declared once, as a field of a dataclass of options.

Flags, YAML files, `tersely.compress`, `CompressionArguments`, checks, `result.json` and the docs come from it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from ..tasks.options import option
from .readers import Reader, number, one_of, text, whole, yes_or_no

__all__ = ["Option", "option", "options_of"]

UNIONS = (types.UnionType, typing.Union)


@dataclasses.dataclass(frozen=True)
class Option:
    """One option, as its field declares it.

    `type`: what a read value is; a `Literal` has closed choices, a tuple is a list. `read`: makes a value of what a
    command line, a file or Python gives, or refuses it. `steps`: the steps that it has an effect on (none: on all of
    them), and `idle`: the value that is true of all other steps anyway. `default_text`: the default in words.
    """

    name: str
    type: Any
    default: Any
    what: str
    read: Reader
    steps: tuple[str, ...] = ()
    idle: Any = None
    default_text: str = ""
    own_reader: bool = False

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
    default_text = "" if field.default is None else shown(field.default)
    default_text, least = declared.pop("default_text", default_text), declared.pop("least", None)
    what = declared.pop("help").removesuffix(f" ({default_text})")
    own = "read" in declared
    found = Option(field.name, hint, field.default, what, declared.pop("read", text), own_reader=own, **declared)
    return dataclasses.replace(found, default_text=default_text, read=found.read if own else _reader(found, least))


def _reader(option: Option, least: int | None) -> Reader:
    """What reads an option that says no more than its type."""
    if typing.get_origin(option.element) is Literal:
        return one_of(*typing.get_args(option.element))
    return {bool: yes_or_no, int: whole(least), float: number()}.get(option.element, text)


def shown(value: Any) -> str:
    """A value as it would be typed.

    >>> shown(("mse", "KL")), shown(True), shown(1.0), shown(())
    ('mse KL', 'true', '1', 'none')
    """
    if isinstance(value, tuple):
        return " ".join(map(shown, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _without_none(hint: Any) -> Any:
    """`int | None` is int."""
    if typing.get_origin(hint) not in UNIONS:
        return hint
    parts = tuple(part for part in typing.get_args(hint) if part is not type(None))
    return parts[0] if len(parts) == 1 else typing.Union[parts]  # noqa: UP007 - made of a tuple
