"""Open an artifact and make it answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import artifact as artifacts
from .. import engines
from ..artifact import Artifact
from ..tasks import Encoder, from_json
from ..tasks.encoder import NoTokenizer
from .choose import choose
from .hub import local_folder
from .predictor import Predictor


def load(
    folder: str | Path,
    engine: str = "auto",
    threads: int | None = None,
    *,
    precision: str | None = None,
    providers: Sequence[Any] | None = None,
    streams: int = 1,
) -> Predictor:
    """Load an artifact, its files checked, onto an engine. Needs neither torch nor transformers.

    `engine="auto"` takes what `tersely tune` found to be the fastest here, else the best engine for the CPU class that
    is installed. `providers` go to ONNX Runtime, which they choose too. `precision="bf16"` runs an FP32 graph,
    or the float parts of an INT8 one, in bf16 where engine and CPU can. `streams`: how many threads of yours may call
    it and be answered at once, each with `threads` of the engine's.

    `hub:owner/name`, or `hub:owner/name@revision` for a branch, a tag or a commit, is an artifact on the Hugging Face
    Hub: it is downloaded once into the user's cache and checked as any folder is (`pip install huggingface-hub`).

    >>> from tersely import runtime
    >>> runtime.load("no/such/folder")
    Traceback (most recent call last):
    tersely.errors.UserError: no/such/folder: There is no such folder. Check the path.
    """
    opened = artifacts.read(local_folder(folder))
    if engine == "auto" and providers is not None:
        engine = engines.with_providers()
    graph, name = choose(opened, engine, threads, precision)
    place, precision = opened.path(graph.path), precision or graph.precision
    runner = engines.load(name, place, threads=threads, precision=precision, providers=providers, streams=streams)
    return Predictor(from_json(opened.manifest.task), open_encoder(opened), runner)


def open_encoder(opened: Artifact) -> Encoder:
    """Read the artifact's tokenizer; a live model may have come without. One that is there must be listed."""
    if "tokenizer.json" not in opened.manifest.files and not (opened.folder / "tokenizer.json").exists():
        config = json.loads(opened.path("config.json").read_text(encoding="utf-8"))
        return NoTokenizer(opened.manifest.pad_token_id, int(config.get("vocab_size") or 1))
    return Encoder.from_file(opened.path("tokenizer.json"), opened.manifest.pad_token_id)
