"""Models behind names: which folders are served, what each of them takes, and texts to try it with."""

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
from ..measure.check import FILE as PROBE
from ..measure.check import read_probe
from ..models.families import longest
from ..runtime import Predictor
from ..runtime.predictor import local_folder
from ..tasks import TASKS, Encoder, Task, facts_of
from ..tasks.wire import Sample, Wire

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
# Share of a vocabulary with Chinese characters in it: English BERT 2 %, multilingual BERT 8 %, Chinese BERT 69 %.
SOME_CHINESE, MOSTLY_CHINESE = 0.04, 0.3


@dataclass(frozen=True)
class ServedModel:
    """An artifact under the name that it is served as; `longest`: tokens that it has positions for (None: any).

    `examples`: texts to try it with, each the `data` of a request.
    """

    name: str
    opened: Artifact
    predictor: Predictor
    longest: int | None
    examples: Sequence[Sample] = ()

    @cached_property
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


def open_model(
    name: str, folder: Path, engine: str = "auto", threads: int | None = None, streams: int = 1
) -> ServedModel:
    """Load one artifact; see `runtime.load`."""
    predictor = runtime.load(folder, engine, threads, streams=streams)
    if not predictor.encoder.reads_text:
        raise UserError("The artifact has no tokenizer, so that it reads no texts.", where=str(folder))
    opened = artifacts.read(folder, verify=False)
    config = json.loads(opened.path("config.json").read_text(encoding="utf-8"))
    task, encoder = predictor.task, predictor.encoder
    either = any(text.optional for text in task.facts.inputs)
    pairs = takes_pairs(opened, encoder) if either else None
    return ServedModel(name, opened, predictor, longest(config), examples_for(task, encoder, pairs))


def examples_for(task: Task, encoder: Encoder, pairs: bool | None = None) -> list[Sample]:
    """Inputs for a task, as the `data` of a request; `pairs`: only pairs of texts, or only single ones."""
    return [sample for language in languages(encoder) for sample in task.wire.samples(language, pairs)]


def takes_pairs(opened: Artifact, encoder: Encoder) -> bool | None:
    """Whether a classifier is for pairs of texts, as the rows of its probe are; None where they do not tell."""
    second_type = encoder.pair.types[3]
    if second_type == 0 or PROBE not in opened.manifest.files:
        return None  # RoBERTa and its kin have one type for both
    pairs = {bool((feature.token_type_ids == second_type).any()) for feature in read_probe(opened).features}
    return pairs.pop() if len(pairs) == 1 else None


def languages(encoder: Encoder) -> Sequence[str]:
    """`en`, `zh` or both: what the vocabulary is made for."""
    vocabulary = json.loads(encoder.to_json())["model"]["vocab"]
    # A Unigram model lists tokens with scores; the others map tokens to numbers.
    tokens = [entry if isinstance(entry, str) else entry[0] for entry in vocabulary]
    share = sum(CHINESE.search(token) is not None for token in tokens) / max(1, len(tokens))
    if share >= MOSTLY_CHINESE:
        return ("zh",)
    return ("en", "zh") if share >= SOME_CHINESE else ("en",)
