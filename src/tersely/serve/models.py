"""Names to models: which folders are served, and what each of them takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import artifact as artifacts
from .. import runtime
from ..artifact import Artifact
from ..errors import UserError
from ..models.families import longest
from ..runtime import Predictor
from ..runtime.hub import local_folder
from ..tasks import TASKS, Task, facts_of
from ..tasks.wire import Wire
from .examples import examples_for, takes_pairs

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Model:
    """An artifact under the name that it is served as; `longest`: pieces that it has positions for (None: any).

    `examples`: texts to try it with, each the `data` of a request.
    """

    name: str
    opened: Artifact
    predictor: Predictor
    longest: int | None
    examples: Sequence[Mapping[str, str]] = ()

    @property
    def task(self) -> Task:
        """What it does, as the artifact says."""
        return self.predictor.task

    @cached_property
    def wire(self) -> Wire:
        """How its task looks to clients."""
        return self.task.wire

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the texts that a request brings; the second of a classifier may be left out."""
        return tuple(text.name for text in self.task.facts.inputs)

    def as_json(self) -> dict[str, Any]:
        """What `GET /models` says of it."""
        score = self.opened.manifest.score or {}
        return {
            "name": self.name,
            "task": self.task.name,
            "problem": getattr(self.task, "problem", None),
            "labels": list(self.task.labels),
            "inputs": list(self.inputs),
            "max_seq_len": self.task.max_seq_length,
            "precision": self.predictor.engine.precision,
            "engine": self.predictor.engine.name,
            "score": score.get("value"),
            "metric": score.get("metric"),
            "examples": list(self.examples),
        }


def named_folders(words: Iterable[str]) -> dict[str, Path]:
    """Names and folders of the command line's words: `DIR`, which is served under its own name, or `NAME=DIR`.

    `DIR` may be an address on the Hub, which is downloaded here.

    >>> named_folders(["runs/reviews", "fp32=runs/plain"])
    {'reviews': PosixPath('runs/reviews'), 'fp32': PosixPath('runs/plain')}
    """
    found: dict[str, Path] = {}
    for word in words:
        name, equals, folder = word.rpartition("=")
        named = bool(equals) and not Path(word).exists()
        folder = str(local_folder(folder if named else word))
        name = name if named else Path(folder).resolve().name
        if not NAME.fullmatch(name):
            raise UserError(
                f"'{name}' cannot be the name of a model: letters, digits, '.', '_' and '-' can.",
                where=folder,
                hint="Name it with: NAME=DIR",
            )
        if name in found:
            raise UserError(
                f"Two models are named '{name}': {found[name]} and {folder}.", hint="Name one of them with: NAME=DIR"
            )
        found[name] = Path(folder)
    return found


def check_folders(folders: Mapping[str, Path]) -> None:
    """Read every manifest, so that what is wrong is said before anything is loaded."""
    for folder in folders.values():
        name = artifacts.read(folder, verify=False).manifest.task.get("name")
        if name in TASKS and (reason := facts_of(name).not_served):
            raise UserError(reason, where=str(folder))


def open_model(name: str, folder: Path, engine: str = "auto", threads: int | None = None, streams: int = 1) -> Model:
    """Load one artifact; see `runtime.load`."""
    predictor = runtime.load(folder, engine, threads, streams=streams)
    if not predictor.encoder.reads_text:
        raise UserError("The artifact has no tokenizer, so that it reads no texts.", where=str(folder))
    opened = artifacts.read(folder, verify=False)
    config = json.loads(opened.path("config.json").read_text(encoding="utf-8"))
    task, encoder = predictor.task, predictor.encoder
    either = any(text.optional for text in task.facts.inputs)
    pairs = takes_pairs(opened, encoder) if either else None
    return Model(name, opened, predictor, longest(config), examples_for(task, encoder, pairs))
