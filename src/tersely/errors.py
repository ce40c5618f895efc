"""What a user sees when something is wrong, and the checks that every room makes: paths, options, JSON."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_FLAGS = re.compile(r"\b((?:tersely|ray|pip) [^']*)|(?<![\w-])--(?=[a-z])")
"""Flags in a message; those of a whole command line stay."""


class UserError(Exception):
    """A mistake that the user can mend: what is wrong, where, and what to do.

    `option`: the name of the option that is wrong, for who knows where it was set. Texts name options by their flags,
    as in `--seed`; who shows the error on a command line sets `on_command_line`, else it names parameters of Python.

    >>> error = UserError("The '--seed' option is torn.", where="a.yml:12", hint="Check for a stray tab.")
    >>> print(error)
    a.yml:12: The 'seed' option is torn. Check for a stray tab.
    >>> error.on_command_line = True
    >>> print(error)
    a.yml:12: The '--seed' option is torn. Check for a stray tab.
    """

    on_command_line = False

    def __init__(
        self, what: str, *, where: str | None = None, hint: str | None = None, option: str | None = None
    ) -> None:
        self.what, self.where, self.hint, self.option = what, where, hint, option
        super().__init__(what)

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        said = f"{self.what} {self.hint}" if self.hint else self.what
        return where + (said if self.on_command_line else _FLAGS.sub(r"\1", said))


class Failure(UserError):
    """The input was fine but the job could not be done (exit code 1 instead of 2)."""


def wrong_option(option: str, what: str, *, where: str | None = None, hint: str | None = None) -> UserError:
    """Say what is wrong with an option, by its name.

    >>> print(wrong_option("max_steps", "must be at least 1. Got 0."))
    The 'max_steps' option must be at least 1. Got 0.
    """
    return UserError(f"The '--{option}' option {what}", where=where, hint=hint, option=option)


def refuse_idle(values: Mapping[str, Any], names: Iterable[str], needed: str) -> None:
    """Refuse options that mean nothing without another one.

    >>> refuse_idle({"against_engine": None, "header": True}, ["against_engine", "header"], "--rows")
    Traceback (most recent call last):
    tersely.errors.UserError: The 'header' option has no effect without rows. Leave it out.
    """
    for name in sorted(names):
        if values[name] is not None:
            raise wrong_option(name, f"has no effect without {needed}.", hint="Leave it out.")


def nearest(word: str, known: Iterable[str]) -> str:
    """End a message about an unknown word: the nearest known one, or all of them.

    >>> nearest("acuracy", ["accuracy", "f1"])
    "Did you mean 'accuracy'?"
    >>> nearest("zzz", ["accuracy", "f1"])
    'Known: accuracy, f1.'
    >>> nearest("pqt", ["qat", "ptq"])
    "Did you mean 'ptq'?"
    """
    known = list(known)
    close = closest(word, known)
    return f"Known: {', '.join(known)}." if close is None else f"Did you mean '{close}'?"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that an unknown one is most like; None where it is like none.

    >>> closest("acuracy", ["accuracy", "f1"]), closest("zzz", ["accuracy", "f1"])
    ('accuracy', None)
    """
    close = difflib.get_close_matches(word, list(known))
    close.sort(key=lambda other: sorted(other) != sorted(word))  # letters that changed places come before other letters
    return close[0] if close else None


def missing_package(package: str, needed_for: str, extra: str | None = None) -> UserError:
    """Say which pip line installs a package that is not there, with the others of the same extra."""
    packages = " ".join(_packages(extra)) if extra else ""
    what = f"The package '{package}' is not installed; {needed_for} needs it."
    return UserError(what, hint=f"Install it with: pip install {packages or package}")


def _packages(extra: str) -> list[str]:
    """What an extra of Tersely brings, by name: that line is right wherever Tersely itself was installed from."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        listed = requires("tersely") or []
    except PackageNotFoundError:  # run from its source, not installed
        return []
    found = []
    for requirement in listed:
        package, _, condition = requirement.replace('"', "'").partition(";")
        others = [part.strip() for part in condition.split(" and ")]
        if f"extra == '{extra}'" in others:
            others.remove(f"extra == '{extra}'")
            found.append(f'"{package.strip()}{"; " + " and ".join(others) if others else ""}"')
    return found


def existing(path: str | Path, what: str) -> Path:
    """Give the path back if it is there; else say that it is not."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"There is no such {what}.", where=str(path), hint="Check the path.")
    return path


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
        raise UserError(f"{what} must be an object. Got {_shortened(content)}.", where=where)
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
    raise UserError(f"{what}: '{name}' must be {expected}. Got {_shortened(value)}.", where=rules[0])


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
