"""Fields of `CompressionArguments`, made from the options of `tersely compress`: each is declared once, there."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

from transformers import TrainingArguments

from ..options.compress import OPTIONS, CompressOptions
from ..options.option import options_of
from ..tasks.options import TaskOptions

TRAINING = frozenset(TrainingArguments.__dataclass_fields__)
COMPRESS = frozenset(CompressOptions.__dataclass_fields__) - TRAINING
"""Options of compression that transformers has not: `seed` and `resume_from_checkpoint` are its own."""
TASK = frozenset(TaskOptions.__dataclass_fields__)
SWITCHES = {
    "overwrite": "replace an earlier result in output_dir",
    "do_compress": "read by scripts: compress the model",
    "do_export": "read by scripts: export the model",
}
OTHER_DEFAULTS = {"save_steps": 100, "logging_steps": 500}
"""Where the reference's documents and transformers differ."""


def declared() -> Iterator[tuple[str, Any, Any]]:
    """Name, type and field of each option that transformers lacks, or has with another default."""
    for name, default in OTHER_DEFAULTS.items():
        ours = TrainingArguments.__dataclass_fields__[name]
        yield name, typing.get_type_hints(TrainingArguments)[name], _field(default, ours.metadata["help"])
    for name, option in OPTIONS.items():
        if name in COMPRESS:
            # The parser of transformers takes lists, not tuples; elements are texts until they are read.
            type_ = list[str] if option.is_list and name != "strategy" else _plain(option.kind)
            yield name, _or_none(type_, option.default), _field(plain(name, option.default), option.help)
    for name, option in options_of(TaskOptions).items():
        yield name, option.type, _field(option.default, option.help)
    yield "tensor_names", list[str] | None, _field(None, "names of a row's tensors in order, where rows are tuples")
    for name, help_ in SWITCHES.items():
        yield name, bool, _field(False, help_)


def read(name: str, value: Any) -> Any:
    """Read what an option was set to, as the field keeps it; refuse what cannot be."""
    if name in COMPRESS:
        return plain(name, OPTIONS[name].value(value))
    if name in TASK:
        return getattr(TaskOptions(**{name: options_of(TaskOptions)[name].value(value)}), name)
    return value


def plain(name: str, value: Any) -> Any:
    """Lists for tuples; one strategy as the text that it is, for scripts that look for a word in it."""
    if name == "strategy" and isinstance(value, tuple) and len(value) == 1:
        return value[0]
    return list(value) if isinstance(value, tuple) else value


def _field(default: Any, help_: str) -> Any:
    metadata = {"help": help_.replace("%", "%%")}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _plain(kind: Any) -> Any:
    return kind if kind in (bool, int, float) else str


def _or_none(type_: Any, default: Any) -> Any:
    return type_ | None if default is None else type_
