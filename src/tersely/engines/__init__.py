"""Engines that run a model: one file each, one line each in the table below."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, missing_package, nearest
from .cpu import CLASSES, Cpu, cpu
from .engine import Batch, Engine, Outputs

__all__ = ["CLASSES", "ENGINES", "Batch", "Cpu", "Engine", "Outputs", "cpu", "installed", "load", "warm"]


@dataclass(frozen=True)
class _Entry:
    """The class that runs, the packages it cannot do without, the extra of ours that brings them, what it offers."""

    type: str
    packages: tuple[str, ...]
    extra: str | None
    precisions: tuple[str, ...]


ENGINES: dict[str, _Entry] = {
    "onnxruntime": _Entry("OnnxRuntimeEngine", ("onnxruntime",), None, ("fp32", "int8")),
    "openvino": _Entry("OpenVinoEngine", ("openvino",), "openvino", ("fp32", "bf16", "int8")),
    "torch": _Entry("TorchEngine", ("torch", "transformers"), "compress", ("fp32",)),
}


def installed() -> tuple[str, ...]:
    """Names of the engines whose packages are there; imports none of them."""
    return tuple(name for name, entry in ENGINES.items() if not _missing(entry))


def load(
    name: str,
    model: str | Path | Any,
    *,
    threads: int | None = None,
    precision: str = "fp32",
    providers: Sequence[Any] | None = None,
    streams: int = 1,
) -> Engine:
    """Load a graph file, or for `torch` a model folder or a live module, into an engine.

    `threads`: None is one per core that this process may use. `precision`: "int8" is what an INT8 graph is, with its
    float parts in FP32; "bf16" is OpenVINO's alone, on CPUs that have it. `providers`: ONNX Runtime only, handed on
    to it as they are. `streams`: how many calls of `run` go on at once, each with so many threads.
    """
    entry = _entry(name)
    if threads is not None and threads < 1:
        raise UserError(f"The number of threads must be at least 1. Got '{threads}'.")
    if precision not in entry.precisions:
        offered = ", ".join(entry.precisions)
        raise UserError(f"The engine '{name}' does not offer the precision '{precision}'.", hint=f"It has: {offered}.")
    options: dict[str, Any] = {"threads": threads, "precision": precision}
    if streams != 1:
        if name == "torch":
            raise UserError(
                "The engine 'torch' has one stream.", hint="The engines 'onnxruntime' and 'openvino' have more."
            )
        options["streams"] = streams
    if providers is not None:
        if name != "onnxruntime":
            raise UserError(f"The engine '{name}' takes no providers.", hint="The engine 'onnxruntime' does.")
        options["providers"] = providers
    engine: Engine = _type(name, entry)(model, **options)
    return engine


def warm(name: str) -> None:
    """Import an engine's library, so that what follows measures the loading of a model alone."""
    _type(name, _entry(name))


def _entry(name: str) -> _Entry:
    if name not in ENGINES:
        raise UserError(f"There is no engine '{name}'.", hint=nearest(name, ENGINES))
    for package in _missing(ENGINES[name]):
        raise missing_package(package, f"the engine '{name}'", ENGINES[name].extra)
    return ENGINES[name]


def _type(name: str, entry: _Entry) -> Any:
    return getattr(importlib.import_module(f".{name}", __name__), entry.type)


def _missing(entry: _Entry) -> list[str]:
    return [package for package in entry.packages if importlib.util.find_spec(package) is None]
