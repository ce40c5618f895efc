"""One self-contained graph of an artifact, laid out as another program wants it, and still an artifact.

So a folder for others can be checked, scored and asked by every command, and is replaced only where it is ours.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ... import __version__, engines
from ... import artifact as artifacts
from ...artifact import Artifact, Graph
from ...atomic import atomic_folder, check_destination
from ...errors import Failure, UserError
from ...measure.check import BATCH, FILE, chooser, compare, read_probe, record_name
from ...measure.score import Score, score
from ...progress import SILENT, Progress
from ...runtime import Predictor, open_encoder
from ...runtime.predictor import run
from ...tasks import from_json
from ..card import card, score_note


class Layout(Protocol):
    """A form that another program loads."""

    @property
    def engine(self) -> str:
        """What the program runs graphs with."""

    @property
    def graph(self) -> str:
        """Where the graph lies in the folder."""

    def place(self, output_dir: Path) -> Path:
        """The folder that appears whole or not at all; refuses names that the program does not take."""

    def write(self, opened: Artifact, graph: Graph, folder: Path) -> tuple[str, ...]:
        """Write an artifact's graph and what the program asks for beside it; gives the files that hold its weights."""


@dataclass(frozen=True)
class LaidOut:
    """The folder, the graph it was made of, the largest |Δlogit| between them on the probe, and the score if any."""

    artifact: Artifact
    source: Graph
    difference: float
    score: Score | None


def lay_out(
    opened: Artifact,
    output_dir: str | Path,
    layout: Layout,
    *,
    examples: Sequence[Any] | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> LaidOut:
    """Write an artifact in a layout; `examples` (labelled rows) give it a score.

    The graph is compared with the artifact's own on the engine that will run it, and refused if answers differ.
    """
    destination = layout.place(Path(output_dir))
    check_destination(destination, overwrite=overwrite)
    engines.warm(layout.engine)  # or it says what to install
    source = self_contained(opened, layout.engine)
    task, probe = from_json(opened.manifest.task), read_probe(opened)
    with atomic_folder(destination, overwrite=overwrite) as scratch, progress.track("lay out", 3) as advance:
        data = layout.write(opened, source, scratch)
        graph = replace(source, path=layout.graph, engines=(layout.engine,), data=data)
        advance(1, "compared with the artifact")
        runner = engines.load(layout.engine, scratch / graph.path, precision=graph.precision)
        original = engines.load(layout.engine, opened.path(source.path), precision=graph.precision)
        before, after = (run(loaded, probe.features, probe.pad_id, batch_size=BATCH) for loaded in (original, runner))
        apart = max(float(np.max(np.abs(first - second))) for first, second in zip(before, after, strict=True))
        if not compare(before, after, probe.logits.get("fp32", before), graph.precision, chooser(task)).within:
            raise Failure(
                f"The {layout.engine} graph does not give the artifact's answers: off by {apart:.1e}.",
                where=str(opened.folder),
            )
        predictor = Predictor(task, open_encoder(opened), runner)
        scored = score(predictor, examples) if examples else None
        advance(1, "packed")
        _pack(opened, source, graph, scratch, scored)
        advance(1)
    return LaidOut(artifacts.read(destination), source, apart, scored)


def self_contained(opened: Artifact, engine: str) -> Graph:
    """The artifact's graph that needs no other graph's file and that the engine may run.

    Of INT8 artifacts that is the standard one, which is right on every CPU that the artifact is right on.
    """
    for graph in opened.manifest.graphs:
        alone = set(graph.data) <= {f"{graph.path}.data"}
        if alone and engine in graph.engines and graph.path.endswith(".onnx"):
            return graph
    has = ", ".join(f"{graph.path} ({', '.join(graph.engines) or 'none'})" for graph in opened.manifest.graphs)
    raise UserError(
        f"The artifact has no self-contained ONNX graph for the engine '{engine}'.",
        where=str(opened.folder),
        hint=f"Its graphs and their engines: {has}.",
    )


def _pack(opened: Artifact, source: Graph, graph: Graph, folder: Path, scored: Score | None) -> None:
    """Put tokenizer, config, probe and card beside the graph, then seal the folder."""
    graphs = {name for listed in opened.manifest.graphs for name in (listed.path, *listed.data)}
    for name in sorted(set(opened.manifest.files) - graphs - {FILE, "README.md"}):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(opened.path(name), folder / name)
    with np.load(opened.path(FILE), allow_pickle=False) as arrays:
        content: dict[str, Any] = {name: arrays[name] for name in arrays.files}
    recorded = content.get(f"logits_{record_name(source)}")
    kept = {name: array for name, array in content.items() if name == "logits_fp32" or not name.startswith("logits_")}
    if recorded is not None:
        kept[f"logits_{record_name(graph)}"] = recorded
    np.savez_compressed(folder / FILE, **kept)
    manifest = replace(
        opened.manifest,
        graphs=(graph,),
        parents=(*opened.manifest.parents, f"sha256:{opened.manifest.files[source.path]}"),
        score=score_note(scored, graph.engines[0]) if scored else None,
        tersely_version=__version__,
        files={},
    )
    name = opened.folder.resolve().name
    (folder / "README.md").write_text(card(name, manifest), encoding="utf-8")
    artifacts.seal(folder, manifest)
