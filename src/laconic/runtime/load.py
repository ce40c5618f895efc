"""Open an artifact and make it answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import artifact as artifacts
from .. import engines
from ..artifact import Artifact, Graph
from ..engines.cpu import cpu
from ..errors import UserError
from ..tasks import Encoder, from_json
from .predictor import Predictor


def load(
    folder: str | Path,
    engine: str = "auto",
    threads: int | None = None,
    *,
    precision: str | None = None,
    providers: Sequence[Any] | None = None,
) -> Predictor:
    """Load an artifact, its files checked, onto an engine. Needs neither torch nor transformers.

    `engine="auto"` takes the first of the graph's engines that is installed; `providers` go to ONNX Runtime.
    `precision="bf16"` runs an FP32 graph in bf16 where engine and CPU can.

    >>> from laconic import runtime
    >>> runtime.load("no/such/folder")
    Traceback (most recent call last):
    laconic.errors.UserError: no/such/folder: There is no such folder. Check the path.
    """
    opened = artifacts.read(folder)
    graph, name = choose(opened, engine)
    runner = engines.load(
        name, opened.path(graph.path), threads=threads, precision=precision or graph.precision, providers=providers
    )
    return Predictor(from_json(opened.manifest.task), open_encoder(opened), runner)


def open_encoder(opened: Artifact) -> Encoder:
    """Read the artifact's tokenizer."""
    return Encoder.from_file(opened.path("tokenizer.json"), opened.manifest.pad_token_id)


def choose(opened: Artifact, engine: str = "auto") -> tuple[Graph, str]:
    """Pick the graph and engine for this machine."""
    here = cpu().cpu_class
    graphs = [graph for graph in opened.manifest.graphs if {"all", here} & set(graph.cpu_classes)]
    offered = {name: graph for graph in reversed(graphs) for name in graph.engines}
    if engine != "auto":
        if engine not in offered:
            raise UserError(
                f"The artifact has no graph for engine '{engine}' on CPU class '{here}'.",
                where=str(opened.folder),
                hint=f"It has: {', '.join(sorted(offered)) or 'none for this class'}.",
            )
        return offered[engine], engine
    installed = engines.installed()
    for graph in graphs:
        for name in graph.engines:
            if name in installed:
                return graph, name
    raise UserError(
        f"No engine for this artifact is installed here ({', '.join(sorted(offered)) or 'none for this CPU class'}).",
        where=str(opened.folder),
        hint="Install one with: pip install onnxruntime",
    )
