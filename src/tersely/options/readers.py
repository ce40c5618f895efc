"""Readers of option values: each takes an option's name and what was given, and gives the value or says what is wrong.

A command line gives texts, a YAML file numbers and its own reading of `on` and `off`, Python anything: one shape of
message for all three.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import UserError, nearest, wrong_option

Reader = Callable[[str, Any], Any]


def text(name: str, value: Any) -> str:
    """Any text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise wrong_option(name, f"must be a text. Got {_shown(value)}.")
    return value


def path(name: str, value: Any) -> str:
    """A text or a path, as a text."""
    return text(name, str(value) if isinstance(value, Path) else value)


def yes_or_no(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise wrong_option(name, f"must be true or false. Got {_shown(value)}.")
    return value


def one_of(*known: str) -> Reader:
    """One of some words, as they are spelt.

    >>> one_of("KL", "mse")("algo_list", "kl")
    Traceback (most recent call last):
    tersely.errors.UserError: The 'algo_list' option cannot be 'kl'. Did you mean 'KL'?
    """

    def read(name: str, value: Any) -> str:
        if isinstance(value, bool) and {"on", "off"} & set(known):
            value = "on" if value else "off"  # what YAML reads these words as
        if value not in known:
            same = [word for word in known if word.lower() == str(value).lower()]
            hint = nearest(same[0] if same else str(value), known)
            raise wrong_option(name, f"cannot be {_shown(value)}.", hint=hint)
        return str(value)

    return read


def integer(least: int | None = None, most: int | None = None) -> Reader:
    """A whole number, both bounds allowed.

    >>> integer(1)("calibration_rows", "128")
    128
    """

    def read(name: str, value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int):
            raise wrong_option(name, f"must be a whole number. Got {_shown(value)}.")
        if least is not None and number < least:
            raise wrong_option(name, f"must be at least {least}. Got {number}.")
        if most is not None and number > most:
            raise wrong_option(name, f"must be at most {most}. Got {number}.")
        return number

    return read


def number(least: float = -math.inf, most: float = math.inf, *, above: bool = False, below: bool = False) -> Reader:
    """A finite number, both bounds allowed; with `above` the lower one is not, with `below` the upper one.

    >>> number(0, 1)("smooth", "1.5")
    Traceback (most recent call last):
    tersely.errors.UserError: The 'smooth' option must be from 0 to 1. Got 1.5.
    """

    def read(name: str, value: Any) -> float:
        try:
            found = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            found = math.nan
        if not math.isfinite(found):
            raise wrong_option(name, f"must be a number. Got {_shown(value)}.")
        if above and found <= least:
            raise wrong_option(name, f"must be above {least:g}. Got {found:g}.")
        if not least <= found <= most or (below and found == most):
            upper = f"to below {most:g}" if below else f"to {most:g}"
            bounds = f"at least {least:g}" if math.isinf(most) else f"from {least:g} {upper}"
            raise wrong_option(name, f"must be {bounds}. Got {found:g}.")
        return found

    return read


def share(name: str, value: Any) -> Fraction:
    """A fraction or a decimal in (0, 1], never evaluated; a float is the decimal that it prints as.

    >>> share("width_mult_list", "2/3"), share("width_mult_list", 0.1)
    (Fraction(2, 3), Fraction(1, 10))
    """
    what = f"must hold fractions in (0, 1]. Got {_shown(value)}."
    try:
        found = Fraction(math.nan if isinstance(value, bool) else value if isinstance(value, Fraction) else str(value))
    except (ValueError, ZeroDivisionError):
        raise wrong_option(name, what, hint="Write them as 3/4 or 0.75.") from None
    if not 0 < found <= 1:
        raise wrong_option(name, what)
    return found


def word_or(words: tuple[str, ...], other: Reader) -> Reader:
    """One of some words, or what another reader takes."""
    word = one_of(*words)

    def read(name: str, value: Any) -> Any:
        if value in words or (value is False and "off" in words):
            return word(name, value)
        try:
            return other(name, value)
        except UserError as error:
            raise UserError(error.what, hint=f"Or one of: {', '.join(words)}.", option=error.option) from None

    return read


def none_or(other: Reader) -> Reader:
    """None, as a value or as the word, or what another reader takes."""
    return lambda name, value: None if value is None or value == "None" else other(name, value)


def several(each: Reader, *, empty: bool = False) -> Reader:
    """A list without repetitions; one text is split at blanks and commas.

    >>> several(integer(1))("batch_size_list", "4 8")
    (4, 8)
    >>> several(integer(1))("batch_size_list", [4, 4])
    Traceback (most recent call last):
    tersely.errors.UserError: The 'batch_size_list' option holds 4 twice.
    """

    def read(name: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, str):
            value = re.split(r"[,\s]+", value.strip()) if value.strip() else []
        many = list(value) if isinstance(value, Iterable) else [value]
        if not many and not empty:
            raise wrong_option(name, "is empty.", hint="Leave it out or give it a value.")
        found = tuple(each(name, element) for element in many)
        for element in found:
            if found.count(element) > 1:
                raise wrong_option(name, f"holds {element} twice.")
        return found

    return read


def _shown(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else repr(value)
