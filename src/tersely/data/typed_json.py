"""Fill a dataclass from plain JSON, every value checked against its field's annotation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import UserError, nearest

T = TypeVar("T")


def fill(kind: type[T], content: Any, what: str, *, where: str | None = None, lenient: bool = False) -> T:
    """Make a `kind` of what a JSON file holds; `what` names it in messages, `where` is the file.

    `lenient`: entries that the dataclass does not know are passed over, as a newer writer's may be.

    Knows what the dataclasses of manifests and tasks are annotated with: plain types, `X | None`, `tuple[X, ...]`,
    `Mapping[str, X]` and other dataclasses.

    >>> @dataclasses.dataclass
    ... class Cut:
    ...     size: int
    >>> fill(Cut, {"size": "wide"}, "The cut")
    Traceback (most recent call last):
    tersely.errors.UserError: The cut: 'size' must be int. Got 'wide'.
    """
    if not isinstance(content, Mapping):
        raise UserError(f"{what} must be an object. Got {_shown(content)}.", where=where)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    content = {name: value for name, value in content.items() if name in fields or not lenient}
    for name in content:
        if name not in fields:
            raise UserError(f"{what} has no entry '{name}'.", where=where, hint=nearest(str(name), fields))
    for name, field in fields.items():
        if name not in content and field.default is field.default_factory is dataclasses.MISSING:
            raise UserError(f"{what} lacks the entry '{name}'.", where=where)
    types = get_type_hints(kind)
    return kind(**{name: _value(types[name], value, what, name, (where, lenient)) for name, value in content.items()})


def _value(kind: Any, value: Any, what: str, name: str, rules: tuple[str | None, bool]) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        kind = next(option for option in inner if option is not NoneType)
        return _value(kind, value, what, name, rules)
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_value(inner[0], item, what, name, rules) for item in value)
    if origin is Mapping and isinstance(value, Mapping):
        return {key: _value(inner[1], item, what, name, rules) for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return fill(kind, value, f"{what}, '{name}',", where=rules[0], lenient=rules[1])  # type: ignore[arg-type]
    if kind is Any or type(value) is kind:  # not isinstance: a bool is no number
        return value
    if kind is float and type(value) is int:
        return float(value)
    expected = {tuple: "a list", Mapping: "an object"}.get(origin) or kind.__name__
    raise UserError(f"{what}: '{name}' must be {expected}. Got {_shown(value)}.", where=rules[0])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
