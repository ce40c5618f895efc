"""What a run was asked for and made with, in plain types: enough to run it again."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..options.compress import CompressOptions
from ..tasks.options import TaskOptions
from . import versions
from .divide import Data

HIDDEN = "…"


def settings(
    options: CompressOptions,
    data: Data,
    *,
    given: Collection[str] = (),
    training: Mapping[str, Any] | None = None,
    task_options: TaskOptions | None = None,
    command: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Options with their values, which of them were set, files, the words that were typed, and versions.

    Access tokens are left out: reports are passed around.
    """
    rows = {"train": data.train, "eval": data.evaluation, "test": data.test}
    task = task_options or TaskOptions()
    return {
        "command": None if command is None else shlex.join(without_tokens(command)),
        "files": {name: some.source for name, some in rows.items() if some is not None},
        "options": {name: plain(value) for name, value in asdict(options).items()},
        "given": sorted(given),
        "training": {
            name: HIDDEN if is_token(name) else plain(value) for name, value in sorted((training or {}).items())
        },
        "task_options": {name: plain(value) for name, value in asdict(task).items() if value is not None},
        "columns": {name: value for name, value in asdict(data.columns).items() if value is not None},
        "python": versions.python(),
        "system": versions.system(),
        "packages": {name: version for name, version in versions.packages().items() if version is not None},
    }


def plain(value: Any) -> Any:
    """A value as JSON has it; what JSON does not know as the words that say it.

    >>> from fractions import Fraction
    >>> plain({"width": (Fraction(3, 4), None)})
    {'width': ['3/4', None]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def is_token(name: str) -> bool:
    """Whether an option holds an access token.

    >>> is_token("hub_token"), is_token("max_seq_length")
    (True, False)
    """
    return name.replace("-", "_").endswith("_token")


def without_tokens(words: Sequence[str]) -> list[str]:
    """The words that were typed, their access tokens hidden.

    >>> without_tokens(["tersely", "--hub_token", "secret", "--hub-token=secret"])
    ['tersely', '--hub_token', '…', '--hub-token=…']
    """
    found: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        name, equals, _ = word.partition("=")
        if word.startswith("--") and equals and is_token(name):
            found.append(f"{name}={HIDDEN}")
        else:
            found.append(HIDDEN if before.startswith("--") and is_token(before) else word)
    return found
