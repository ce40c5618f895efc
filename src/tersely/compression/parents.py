"""The models that candidates are made of, the user's own first: each as a folder, an FP32 artifact and a graph."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import onnx

from .. import __version__, engines, tasks
from .. import artifact as artifacts
from ..artifact import Artifact, Graph, Manifest, sha256
from ..deploy.export import GRAPH
from ..deploy.from_model import pack, write_artifact
from ..deploy.probe import probe_batches, probe_examples, probe_features, write_probe
from ..errors import UserError
from ..graphs.first_position import keep_first_position
from ..graphs.plain import unfold
from ..graphs.read import graph_path, read_graph
from ..models.carve import Shape
from ..models.folder import ModelFolder, make_task, open_folder, read_config, read_encoder
from ..options.compress import CompressOptions
from ..progress import SILENT, Progress
from ..prune.distil_shape import Distilled
from ..prune.dynabert import Pruned
from ..prune.vocabulary import PrunedVocabulary
from ..qat import Trained
from ..strategy import Plan
from ..tasks import Encoder, Task
from ..tasks.options import TaskOptions
from .divide import DividedRows, Encoded
from .request import Request


@dataclass(frozen=True)
class RunContext:
    """What all steps of one run share. `scratch` goes with the run; `work` stays until a result is there.

    `plans`: what the options' strategies do here. The seed is that of the options.
    """

    request: Request
    plans: tuple[Plan, ...]
    rows: DividedRows
    work: Path
    scratch: Path
    progress: Progress = SILENT

    @property
    def options(self) -> CompressOptions:
        """How to compress."""
        return self.request.options


def options_for(kind: Any, options: CompressOptions) -> dict[str, Any]:
    """The options that a step's settings, a dataclass, have under the same names."""
    names = {option.name for option in fields(options)}
    return {field.name: getattr(options, field.name) for field in fields(kind) if field.name in names}


@dataclass(frozen=True)
class Shot:
    """A model that was pruned without training for a speed-up: how, and how fast its graph came out.

    `change`: mean |Δoutput| on rows that fitted nothing. `expected`: the speed-up by the latency table.
    """

    name: str
    target: float
    shape: Shape
    method: str
    change: float
    expected: float
    seen: float

    def __str__(self) -> str:
        """The shot in words, for the progress output."""
        heads, neurons = (" ".join(map(str, sizes)) for sizes in (self.shape.heads, self.shape.ffn))
        kept = f"heads {heads}, neurons {neurons} (by {self.method})"
        return f"{self.seen:.2f} × FP32, by the table {self.expected:.2f}; {kept}"


@dataclass(frozen=True)
class Parent:
    """A model that candidates are made of, and the plans that start from it.

    `proto`: the graph as `graphs.read.unfold` and `graphs.first_position` leave it. `digest`: sha256 of the graph that
    everything is made from: the file that the user named, or the exported one. `made_from`: the digests of what it was
    made from, the user's model first; empty for the user's model itself. `name`: its folder under torch/; empty for the
    user's own model. `pruned`, `vocabulary`, `trained`: what pruning, cutting the vocabulary and training for INT8 say
    of it. `rows`: as its own tokenizer encodes them. `first_only`: the last layer is computed for the first position
    alone. `shot`, `distilled`: what pruning without training, and training after it, say of it.
    """

    model_name: str
    folder: ModelFolder
    fp32: Artifact
    proto: Any = field(repr=False)
    digest: str
    made_from: tuple[str, ...] = ()
    name: str = ""
    pruned: Pruned | None = None
    vocabulary: PrunedVocabulary | None = None
    trained: Trained | None = None
    plans: tuple[Plan, ...] = ()
    rows: Encoded = field(repr=False, default=Encoded())
    skip_layers: tuple[str, ...] = ()
    first_only: bool = False
    shot: Shot | None = None
    distilled: Distilled | None = None

    @property
    def task(self) -> Task:
        """What the model answers."""
        return self.folder.task

    @property
    def encoder(self) -> Encoder:
        """Its tokenizer."""
        return self.folder.encoder

    @property
    def width(self) -> str | None:
        """The part of its candidates' names that says how it was pruned; None: it was not."""
        return self.shot.name if self.shot else self.pruned.name if self.pruned else None

    @property
    def label(self) -> str:
        """A name that no other parent has."""
        return f"{self.name} qat".strip() if self.trained else self.name


def find_model(model: str | Path | None, graph: str | Path | None, options: TaskOptions) -> ModelFolder:
    """Read config, task and tokenizer of a model folder, or of a graph: in `model`, else beside it."""
    if graph is not None:
        file = graph_path(graph)
        return replace(_open(model or _beside(file), options), graph=file)
    if model is None:
        raise UserError("A model is needed.", hint="Name its folder, or a graph with --input_infer_model_path.")
    if artifacts.is_artifact(model):
        inner = Path(model) / GRAPH
        hint = f"Or from its graph: --input_infer_model_path {inner}" if inner.is_file() else None
        what = "This is an artifact already; compress starts from the fine-tuned model folder."
        raise UserError(what, where=str(model), hint=hint)
    return open_folder(model, options)


def open_model(folder: ModelFolder, place: Path, *, input_dtype: str = "int64", progress: Progress = SILENT) -> Parent:
    """Export the model folder, or read the bare graph; both are compared with what they come from."""
    if folder.graph is None:
        fp32, proto, digest, first_only = _export(folder, place, input_dtype, progress)
        return Parent(folder.name, folder, fp32, proto, digest, first_only=first_only)
    proto = read_graph(folder.graph)
    fp32 = _artifact_of(proto, folder.graph, folder, place)
    shortened = keep_first_position(proto) > 0
    return Parent(folder.name, folder, fp32, proto, sha256(folder.graph), first_only=shortened)


def open_made(folder: ModelFolder, parent: Parent, place: Path, run: RunContext) -> Parent:
    """Export a model that was made of a parent, and compare it with torch as the parent was."""
    fp32, proto, digest, first_only = _export(folder, place, run.options.input_dtype, run.progress)
    made_from = (*parent.made_from, parent.digest)
    own = {"fp32": fp32, "proto": proto, "digest": digest, "first_only": first_only}
    return replace(parent, folder=folder, made_from=made_from, **own)


def _export(folder: ModelFolder, place: Path, input_dtype: str, progress: Progress) -> tuple[Artifact, Any, str, bool]:
    """The artifact, its graph in plain form, the digest of that file, whether the last layer has one position."""
    fp32 = write_artifact(folder, place, input_dtype=input_dtype, progress=progress).artifact
    proto = unfold(onnx.load(fp32.path(GRAPH)))
    shortened = keep_first_position(proto) > 0
    return fp32, proto, sha256(fp32.path(GRAPH)), shortened


def _beside(file: Path) -> Path:
    """The folder with the graph's config and tokenizer: its own, or the one above as optimum lays it out."""
    for folder in (file.parent, file.resolve().parent.parent):
        if (folder / "config.json").is_file():
            return folder
    raise UserError(
        "There is no config.json beside the graph, so that its task and tokenizer are not known.",
        where=str(file),
        hint="Name the model's folder too.",
    )


def _open(path: str | Path, options: TaskOptions) -> ModelFolder:
    """Open the folder of a graph; an artifact's own settings (length, metric …) are the defaults."""
    if not artifacts.is_artifact(path):
        return open_folder(path, options)
    manifest = artifacts.read(path).manifest
    settings = tasks.to_json(tasks.from_json(manifest.task))
    config = read_config(path)
    task = make_task(settings.pop("name"), settings, options, config, where=str(path))
    return ModelFolder(Path(path), config, task, read_encoder(path, config), provenance=manifest.provenance)


def _artifact_of(proto: Any, file: Path, folder: ModelFolder, place: Path) -> Artifact:
    (place / GRAPH).parent.mkdir(parents=True)
    onnx.save_model(proto, place / GRAPH)
    engine = engines.load(engines.REFERENCE, place / GRAPH)
    task, encoder = folder.task, folder.encoder
    probed = probe_features(task, encoder, probe_examples(task))
    _check_outputs(engine, probe_batches(probed, encoder.pad_id)[0], task, file)
    write_probe(place / "probe.npz", probed, encoder.pad_id, fp32=engine)
    dtype = proto.graph.input[0].type.tensor_type.elem_type
    manifest = Manifest(
        task=tasks.to_json(task),
        model_type=str(folder.config["model_type"]),
        inputs=engine.inputs,
        input_dtype="int32" if dtype == onnx.TensorProto.INT32 else "int64",
        pad_token_id=encoder.pad_id,
        graphs=(Graph(GRAPH, engines.GRAPH_ENGINES, "fp32"),),
        provenance=folder.provenance,
        tersely_version=__version__,
    )
    pack(place, folder, manifest)
    return artifacts.read(place)


def _check_outputs(engine: Any, batch: Any, task: Task, file: Path) -> None:
    """Run one batch; refuse a graph that the model does not fit: too few rows in its tables, or other outputs."""
    try:
        outputs = engine.run(batch)
    except Exception as error:  # its exceptions share no base class but this one
        reason = str(error).splitlines()[0]
        what = f"The graph does not run on what the tokenizer gives: {reason}"
        raise UserError(what, where=str(file), hint="Do the two belong together?") from error
    rows, length = batch["input_ids"].shape
    shape = (rows,) if task.facts.answers_for == "row" else (rows, length)
    single = len(task.outputs) == 1
    expected = (*shape, len(task.labels)) if single else shape
    if [array.shape for array in outputs] != [expected] * len(task.outputs):
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in zip(engine.outputs, outputs, strict=True))
        raise UserError(
            f"The graph does not give what {task.name} needs ({', '.join(task.outputs)} "
            f"{list(expected)}). Got: {shapes}.",
            where=str(file),
            hint="Does the graph belong to this config.json?",
        )
