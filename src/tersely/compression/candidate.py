"""One way to make the model smaller, written as an artifact: graphs for every engine over one set of integers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from .. import __version__, engines
from .. import artifact as artifacts
from ..artifact import MANIFEST, Artifact, Graph, Manifest
from ..deploy.card import card
from ..deploy.export import GRAPH
from ..deploy.probe import probe_examples, probe_features, write_probe
from ..engines.cpu import EXACT_CLASSES, cpu
from ..engines.engine import Engine
from ..engines.saturation import effective_class
from ..graphs.rewrite import save_sharing
from ..graphs.write_emulated import write_emulated
from ..graphs.write_onnxruntime import write_onnxruntime
from ..graphs.write_qdq import write_qdq
from ..quant_map import QuantMap
from ..runtime.choose import Pair, ranked
from ..strategy import Plan
from .parents import Parent

STANDARD = "onnx/model_quantized.onnx"
"""Standard operators and all weights in one file, where optimum and transformers.js look; OpenVINO runs it."""

FUSED = "onnx/model_onnxruntime.onnx"
"""ONNX Runtime's fused integer operators, over the weights of the standard file."""

ATTENTION = "onnx/model_attention.onnx"
"""The standard form with s8 products of attention, over the weights of the standard file, where sums have 32 bits."""

SIGNED = "onnx/model_signed.onnx"
"""Q/DQ with s8 and zero point 0 only, as TensorRT asks for, over the weights of the standard file."""


@dataclass(frozen=True)
class Candidate:
    """A smaller model: its name, the plan that made it, the model it is made from, and what becomes of every weight.

    `folder` and `graphs`: where it was written, and what; empty before that.
    """

    name: str
    plan: Plan
    parent: Parent = field(repr=False)
    quant_map: QuantMap = field(repr=False)
    folder: Path = Path()
    graphs: tuple[Graph, ...] = ()

    def pairs(self) -> list[Pair]:
        """Its graphs on the engines that are installed here, in the order in which the runtime prefers them."""
        here = cpu().cpu_class
        found = ranked(self.graphs, lambda graph, engine: effective_class(engine, here))
        return [pair for pair in found if pair.engine in engines.installed()]

    def load(self, pair: Pair, threads: int | None = None, *, emulated: Path | None = None) -> Engine:
        """Load one of its graphs; `emulated`: a folder for the exact form of graphs that are not for this CPU."""
        graph = self.folder / pair.graph.path
        if emulated is None or pair.fits:
            return engines.load(pair.engine, graph, threads=threads, precision=pair.graph.precision)
        exact = write_emulated(graph, emulated / f"{self.name}-{graph.stem}.onnx")
        return engines.load(engines.REFERENCE, exact, threads=threads)

    def size(self, graph: Graph) -> int:
        """Bytes that an engine reads to run a graph."""
        return sum((self.folder / name).stat().st_size for name in (graph.path, *graph.data))


def write_candidate(candidate: Candidate, folder: Path, wanted: Sequence[str]) -> Candidate:
    """Write the graphs for the engines in `wanted`; the standard graph is always written, as it holds the weights.

    A plan that only prunes gives one FP32 graph, where optimum and transformers.js look for one.
    """
    proto, quant_map = candidate.parent.proto, candidate.quant_map
    if quant_map.layers or quant_map.tables:
        return replace(candidate, folder=folder, graphs=_write_integer(proto, quant_map, folder, wanted))
    (folder / GRAPH).parent.mkdir(parents=True)
    onnx.save_model(proto, folder / GRAPH)
    agreeing = candidate.parent.fp32.manifest.graphs[0].engines
    graph = Graph(GRAPH, tuple(name for name in agreeing if name in wanted) or agreeing, "fp32")
    return replace(candidate, folder=folder, graphs=(graph,))


def _write_integer(proto: Any, quant_map: QuantMap, folder: Path, wanted: Sequence[str]) -> tuple[Graph, ...]:
    classes = quant_map.cpu_classes
    wanted_engines = [(name, facts) for name, facts in engines.ENGINES.items() if name in wanted]
    if not quant_map.layers:  # only tables: one graph does for all
        save_sharing(write_qdq(proto, quant_map, signed=False), {}, folder / "onnx", Path(STANDARD).name)
        return (Graph(STANDARD, tuple(name for name, _ in wanted_engines), "int8", classes),)
    fusing = tuple(name for name, facts in wanted_engines if facts.fuses_int8)
    gaining = tuple(name for name, facts in wanted_engines if facts.int8_attention)
    standard = (*(name for name, _ in wanted_engines if name not in fusing), *fusing)  # those first that have no other
    others = {}
    graphs: tuple[Graph, ...] = (Graph(STANDARD, standard, "int8", classes),)
    if quant_map.products and gaining:
        others[Path(ATTENTION).name] = write_qdq(proto, quant_map, signed=False, signed_sides=True)
        graphs = (Graph(ATTENTION, gaining, "int8", EXACT_CLASSES, (STANDARD,)), *graphs)
    if "all" not in quant_map.product_classes:
        quant_map = replace(quant_map, products={})
    if fusing:
        others[Path(FUSED).name] = write_onnxruntime(proto, quant_map)
        graphs = (Graph(FUSED, fusing, "int8", classes, (STANDARD,)), *graphs)
    if not at_run_time(quant_map):
        others[Path(SIGNED).name] = write_qdq(proto, quant_map, signed=True)
        graphs = (*graphs, Graph(SIGNED, (), "int8", classes, (STANDARD,)))
    save_sharing(write_qdq(proto, quant_map, signed=False), others, folder / "onnx", Path(STANDARD).name)
    return graphs


def seal_candidate(
    candidate: Candidate,
    examples: Sequence[Any],
    score: Mapping[str, Any] | None,
    runners: Mapping[str, Engine],
) -> Artifact:
    """Put tokenizer, config, probe and card beside the graphs and seal the folder.

    `examples`: rows from which the probe's are taken. `score`: what the manifest says of the score. `runners`: the FP32
    model that the candidate was made from as "fp32", the candidate's own graphs by `measure.check.record_name`.
    """
    folder, parent = candidate.folder, candidate.parent
    fp32 = parent.fp32.manifest
    replaced = {name for graph in fp32.graphs for name in (graph.path, *graph.data)}
    for name in fp32.files:
        if name not in (*replaced, "probe.npz", "README.md"):
            link(parent.fp32.folder / name, folder / name)
    probed = probe_features(parent.task, parent.encoder, probe_examples(parent.task, examples))
    write_probe(folder / "probe.npz", probed, parent.encoder.pad_id, **runners)
    manifest: Manifest = replace(
        fp32,
        graphs=candidate.graphs,
        strategy=candidate.plan.name,
        parents=tuple(f"sha256:{digest}" for digest in (*parent.made_from, parent.digest)),
        score=score,
        tersely_version=__version__,
        files={},
    )
    text = card(f"{parent.model_name}, {candidate.name}", manifest, at_run_time=at_run_time(candidate.quant_map))
    (folder / "README.md").write_text(text, encoding="utf-8")
    artifacts.seal(folder, manifest)
    return artifacts.read(folder, verify=False)


def at_run_time(quant_map: QuantMap) -> bool:
    """Whether engines take the ranges of inputs from each batch."""
    return any(layer.range is None for layer in quant_map.layers.values())


def link(file: Path, place: Path) -> None:
    """Link a file to a second place; where the file system has no hard links, copy it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, place)
    except OSError:
        shutil.copyfile(file, place)


def link_artifact(artifact: Artifact, folder: Path) -> None:
    """A second artifact with the same files on disk, but for those that graphs keep their weights in.

    From 1.21 on onnx reads no external data from a file with a second name ("potential hardlink attack").
    """
    weights = {name for graph in artifact.manifest.graphs for name in graph.data}
    for name in (*artifact.manifest.files, MANIFEST):
        if name in weights:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(artifact.folder / name, folder / name)
        else:
            link(artifact.folder / name, folder / name)
