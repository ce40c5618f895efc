"""`Engine`: a batch in, logits out; which engines are installed, and how one is loaded."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import UserError, missing_package, nearest
from .facts import ENGINES, EngineFacts

Batch = Mapping[str, NDArray[np.integer[Any]]]
Outputs = tuple[NDArray[np.float32], ...]

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""What an encoder may take."""


class Engine(Protocol):
    """One loaded model. `inputs` are the names it takes; others in a batch are passed over.

    `outputs` are the names of what `run` gives, in its order. `run` may be called from several threads; what it gives
    belongs to the caller and is not written to again.
    """

    name: str
    precision: str
    threads: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, batch: Batch) -> Outputs:
        """`input_ids`, `attention_mask`, … [rows, length] to the model's outputs, in its own order."""


def feed(batch: Batch, types: Mapping[str, DTypeLike]) -> dict[str, NDArray[Any]]:
    """Take from a batch what a model wants, in the model's own types; say so if something is missing."""
    missing = [name for name in types if name not in batch]
    if missing:
        raise UserError(
            f"The model takes the input '{missing[0]}', which the batch does not have.",
            hint=f"The batch has: {', '.join(batch) or 'nothing'}.",
        )
    return {name: np.ascontiguousarray(batch[name], dtype=kind) for name, kind in types.items()}


def input_types(named: Mapping[str, str], known: Mapping[str, DTypeLike], path: str | Path) -> dict[str, DTypeLike]:
    """NumPy's types of a graph's inputs, by name; `named` are the engine's own words for them."""
    for name, kind in named.items():
        if kind not in known:
            raise UserError(f"The input '{name}' is of type {kind}, not integer.", where=str(path))
    return {name: known[kind] for name, kind in named.items()}


def unloadable(engine: str, reason: str, path: str | Path) -> UserError:
    """What is raised where an engine's library does not load a graph."""
    hint = f"The file may be damaged, or made for a newer {engine}."
    return UserError(f"{engine} cannot load this graph: {reason}", where=str(path), hint=hint)


def installed(among: Iterable[str] = ENGINES) -> tuple[str, ...]:
    """Names of the engines whose packages are there, or of those `among` others; imports none of them."""
    return tuple(name for name in among if not _missing(ENGINES[name]))


def load(
    name: str,
    model: str | Path | Any,
    *,
    threads: int | None = None,
    precision: str = "fp32",
    providers: Sequence[Any] | None = None,
    streams: int = 1,
) -> Engine:
    """Load a graph file, or for `torch` a live module, into an engine.

    `threads`: None is one per core that this process may use. `precision`: "int8" is what an INT8 graph is, with its
    float parts in FP32; "bf16" is OpenVINO's alone, on CPUs that have it. `providers`: ONNX Runtime only, passed on
    to it as they are. `streams`: how many calls of `run` go on at once, each with so many threads.
    """
    facts = _facts(name)
    if threads is not None and threads < 1:
        raise UserError(f"The number of threads must be at least 1. Got '{threads}'.")
    if precision not in facts.precisions:
        offered = ", ".join(facts.precisions)
        raise UserError(f"The engine '{name}' does not offer the precision '{precision}'.", hint=f"It has: {offered}.")
    options: dict[str, Any] = {"threads": threads, "precision": precision}
    if streams != 1:
        if not facts.has_streams:
            others = " and ".join(f"'{other}'" for other in ENGINES if ENGINES[other].has_streams)
            raise UserError(f"The engine '{name}' has one stream.", hint=f"The engines {others} have more.")
        options["streams"] = streams
    if providers is not None:
        if not facts.takes_providers:
            raise UserError(f"The engine '{name}' takes no providers.", hint=f"The engine '{with_providers()}' does.")
        options["providers"] = providers
    engine: Engine = _type(name, facts)(model, **options)
    return engine


def warm(name: str) -> None:
    """Import an engine's library, so that what follows measures the loading of a model alone."""
    _type(name, _facts(name))


def with_providers() -> str:
    """The engine that takes `providers`."""
    return next(name for name, facts in ENGINES.items() if facts.takes_providers)


def _facts(name: str) -> EngineFacts:
    if name not in ENGINES:
        raise UserError(f"There is no engine '{name}'.", hint=nearest(name, ENGINES))
    for package in _missing(ENGINES[name]):
        raise missing_package(package, f"the engine '{name}'", ENGINES[name].extra)
    return ENGINES[name]


def _type(name: str, facts: EngineFacts) -> Any:
    return getattr(importlib.import_module(f".{name}", __package__), facts.type)


def _missing(facts: EngineFacts) -> list[str]:
    return [package for package in facts.packages if importlib.util.find_spec(package) is None]
