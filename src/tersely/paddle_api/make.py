"""Dataclasses from values by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .arguments import TRANSLATED, CompressionArguments


def names_of(kind: Any) -> list[str]:
    """What a dataclass can be made with."""
    own = [field.name for field in dataclasses.fields(kind) if field.init]
    return [*own, *TRANSLATED] if issubclass(kind, CompressionArguments) else own


def make(kind: Any, values: Mapping[str, Any]) -> Any:
    """Make a dataclass of those values that it takes; the others are left to its own defaults."""
    given = {name: values[name] for name in names_of(kind) if name in values}
    later = {}
    if issubclass(kind, CompressionArguments) and kind.__init__ is not CompressionArguments.__init__:
        later = {name: given.pop(name) for name in TRANSLATED if name in given}  # its constructor has the fields only
    made = kind(**given)
    for name, value in later.items():
        setattr(made, name, value)
    return made
