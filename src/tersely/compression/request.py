"""`Request`: what one compress run is asked for, by the command line, by `tersely.compress` or by a `Trainer`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..models.folder import ModelFolder
from ..options.compress import CompressOptions
from ..tasks.options import TaskOptions
from ..training.losses import Criterion
from . import versions
from .divide import Data, UnreadData

HIDDEN = "…"


@dataclass(frozen=True)
class Request:
    """Model, rows, output folder and options of one run.

    `model`: where its folder is, or the folder opened. `data` holds the rows that train, calibrate, choose and
    report; those that are not read yet are read once options, output folder and model have been checked.
    `set_options`: names of options that the user set; those that can have no effect are refused. `training`: options
    of transformers, for plans that train. `criterion`: the user's loss in the place of the task's own. `command`: the
    words of the command line, to run it again.
    """

    model: str | Path | ModelFolder | None
    output_dir: str | Path
    data: Data | UnreadData
    options: CompressOptions = field(default_factory=CompressOptions)
    set_options: Set[str] = frozenset()
    task_options: TaskOptions = field(default_factory=TaskOptions)
    training: Mapping[str, Any] = field(default_factory=dict)
    overwrite: bool = False
    criterion: Criterion | None = None
    command: Sequence[str] | None = None

    def settings(self, data: Data) -> dict[str, Any]:
        """What `result.json` says of it, in plain types: enough to run it again. `data`: the rows that were read.

        Access tokens are left out: reports are passed around.
        """
        rows = {"train": data.train, "unlabelled": data.unlabelled, "eval": data.evaluation, "test": data.test}
        training = sorted(self.training.items())
        return {
            "command": None if self.command is None else shlex.join(without_tokens(self.command)),
            "files": {name: some.source for name, some in rows.items() if some is not None},
            "options": {name: plain(value) for name, value in asdict(self.options).items()},
            "given": sorted(self.set_options),
            "training": {name: HIDDEN if is_token(name) else plain(value) for name, value in training},
            "task_options": {
                name: plain(value) for name, value in asdict(self.task_options).items() if value is not None
            },
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
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def is_token(name: str) -> bool:
    """Whether an option holds an access token.

    >>> is_token("hub_token"), is_token("max_seq_length")
    (True, False)
    """
    return name.replace("-", "_").endswith("_token")


def without_tokens(words: Sequence[str]) -> list[str]:
    """The words of a command line, with access tokens hidden.

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
