"""What is to be compressed, a model folder or a bare ONNX graph, as one FP32 artifact and its graph in plain form."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from .. import __version__, engines, tasks
from .. import artifact as artifacts
from ..artifact import Artifact, Graph, Manifest
from ..errors import UserError
from ..export import GRAPH, export, pack
from ..folder import ModelFolder, open_folder
from ..graphs.read import graph_path, read_graph, unfold
from ..options import TaskOptions
from ..probe import probe_batches, probe_examples, probe_features, write_probe
from ..progress import SILENT, Progress
from ..tasks import Encoder, Task


@dataclass(frozen=True)
class Source:
    """The model by name, its FP32 artifact, its graph as `graphs.read.unfold` leaves it, its task and tokenizer."""

    name: str
    fp32: Artifact
    proto: Any = field(repr=False)
    task: Task
    encoder: Encoder


def open_source(
    model: str | Path | None,
    graph: str | Path | None,
    options: TaskOptions,
    scratch: Path,
    *,
    input_dtype: str = "int64",
    progress: Progress = SILENT,
) -> Source:
    """Export a model folder, or read a bare graph with the config and tokenizer of `model` or of its own folder."""
    if graph is not None:
        file = graph_path(graph)
        folder = open_folder(model or _beside(file), options)
        proto = read_graph(file)
        fp32 = _artifact_of(proto, file, folder, scratch / "fp32")
        return Source(file.stem, fp32, proto, folder.task, folder.encoder)
    if model is None:
        raise UserError("The '--model_name_or_path' option is needed.", hint="Or --input_infer_model_path FILE.onnx.")
    if artifacts.is_artifact(model):
        raise UserError(
            "This is an artifact already; compress starts from the fine-tuned model folder.",
            where=str(model),
            hint=f"Or from its graph: --input_infer_model_path {model}/{GRAPH}",
        )
    folder = open_folder(model, options)
    done = export(folder, scratch / "fp32", input_dtype=input_dtype, progress=progress)
    proto = unfold(onnx.load(done.artifact.path(GRAPH)))
    return Source(Path(model).resolve().name, done.artifact, proto, folder.task, folder.encoder)


def _beside(file: Path) -> Path:
    """The folder with the graph's config and tokenizer: its own, or the one above as optimum lays it out."""
    for folder in (file.parent, file.resolve().parent.parent):
        if (folder / "config.json").is_file():
            return folder
    raise UserError(
        "There is no config.json beside the graph, so that its task and tokenizer are not known.",
        where=str(file),
        hint="Name the model's folder with --model_name_or_path.",
    )


def _artifact_of(proto: Any, file: Path, folder: ModelFolder, place: Path) -> Artifact:
    (place / GRAPH).parent.mkdir(parents=True)
    onnx.save_model(proto, place / GRAPH)
    engine = engines.load("onnxruntime", place / GRAPH)
    task, encoder = folder.task, folder.encoder
    probed = probe_features(task, encoder, probe_examples(task))
    outputs = engine.run(probe_batches(probed, encoder.pad_id)[0])
    wanted = len(task.outputs)
    if len(outputs) != wanted or (wanted == 1 and outputs[0].shape[-1] != len(task.labels)):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(engine.outputs, outputs, strict=True))
        raise UserError(
            f"The graph does not give what {task.name} needs ({', '.join(task.outputs)}"
            f"{f' with {len(task.labels)} labels' if wanted == 1 else ''}). Got: {shapes}.",
            where=str(file),
            hint="Does the graph belong to this config.json?",
        )
    write_probe(place / "probe.npz", probed, encoder.pad_id, fp32=engine)
    dtype = proto.graph.input[0].type.tensor_type.elem_type
    manifest = Manifest(
        task=tasks.to_json(task),
        model_type=str(folder.config["model_type"]),
        inputs=engine.inputs,
        input_dtype="int32" if dtype == onnx.TensorProto.INT32 else "int64",
        pad_token_id=encoder.pad_id,
        graphs=(Graph(GRAPH, ("onnxruntime", "openvino"), "fp32"),),
        laconic_version=__version__,
    )
    pack(place, folder, manifest)
    return artifacts.read(place)
