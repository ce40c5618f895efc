"""From a fine-tuned model folder to an FP32 artifact: its graph is compared with torch and packed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__, engines, tasks
from .. import artifact as artifacts
from ..artifact import Graph, Manifest
from ..atomic import atomic_folder, check_destination
from ..engines.engine import INPUTS
from ..engines.torch import TorchEngine, input_names
from ..graphs.agree import allowed
from ..graphs.export import check_input_dtype, difference, export_onnx, weights_file
from ..measure.score import score
from ..models.folder import ModelFolder, read_tokenizer
from ..models.torch_folder import quiet_transformers
from ..progress import SILENT, Progress
from ..runtime import Predictor
from .card import card, score_note
from .export import GRAPH, Exported
from .probe import probe_batches, probe_examples, probe_features, write_probe


def write_artifact(
    folder: ModelFolder,
    output_dir: str | Path,
    *,
    input_dtype: str = "int64",
    examples: Sequence[Any] | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Exported:
    """Write an artifact; `examples` (labelled rows) give it a score and its probe.

    The graph is compared with torch on real inputs and refused if it disagrees (`graphs.agree.allowed`).
    """
    check_destination(output_dir, overwrite=overwrite)
    check_input_dtype(input_dtype)
    module = folder.load()
    task, encoder = folder.task, folder.encoder
    probed = probe_features(task, encoder, probe_examples(task, examples))
    batches = probe_batches(probed, encoder.pad_id)
    with atomic_folder(output_dir, overwrite=overwrite) as scratch, progress.track("export", 3) as advance:
        graph = scratch / GRAPH
        unusual = not set(input_names(module)) <= set(INPUTS)
        export_onnx(module, graph, input_dtype=input_dtype, sample=batches if unusual else None, check=batches)
        advance(1, "scored and compared with torch")
        runners = {name: engines.load(name, graph) for name in engines.installed(engines.GRAPH_ENGINES)}
        found = {name: difference(module, runner, batches) for name, runner in runners.items()}
        scored = score(Predictor(task, encoder, runners[engines.REFERENCE]), examples) if examples else None
        advance(1, "packed")
        write_probe(scratch / "probe.npz", probed, encoder.pad_id, fp32=TorchEngine(module))
        manifest = Manifest(
            task=tasks.to_json(task),
            model_type=str(folder.config["model_type"]),
            inputs=input_names(module),
            input_dtype=input_dtype,
            pad_token_id=encoder.pad_id,
            graphs=(Graph(GRAPH, _agreeing(found), "fp32", data=_beside(graph, scratch)),),
            score=score_note(scored) if scored else None,
            provenance=folder.provenance,
            tersely_version=__version__,
        )
        pack(scratch, folder, manifest)
        advance(1)
    return Exported(artifacts.read(output_dir), {name: off for name, (off, _) in found.items()}, scored)


def _beside(graph: Path, folder: Path) -> tuple[str, ...]:
    """The file that holds a graph's weights, if one file cannot hold both."""
    weights = weights_file(graph)
    return (weights.relative_to(folder).as_posix(),) if weights.exists() else ()


def _agreeing(found: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """The engines to offer, by how far each is off and the largest logit: not one that was seen to disagree here."""
    agrees = {name: off <= allowed(largest) for name, (off, largest) in found.items()}  # NaN does not
    return tuple(name for name in engines.GRAPH_ENGINES if agrees.get(name, True))


def pack(scratch: Path, folder: ModelFolder, manifest: Manifest) -> None:
    """Put tokenizer, if there is one, config and card beside the graph, then seal the folder."""
    if folder.template is None:
        with quiet_transformers():
            read_tokenizer(folder.path).save_pretrained(scratch / "tokenizer")
        shutil.copyfile(scratch / "tokenizer" / "tokenizer_config.json", scratch / "tokenizer_config.json")
        shutil.rmtree(scratch / "tokenizer")
    elif (folder.path / "tokenizer_config.json").is_file():
        shutil.copyfile(folder.path / "tokenizer_config.json", scratch / "tokenizer_config.json")
    if folder.encoder.reads_text:
        (scratch / "tokenizer.json").write_text(folder.encoder.to_json(), encoding="utf-8")
    shutil.copyfile(folder.path / "config.json", scratch / "config.json")
    (scratch / "README.md").write_text(card(folder.name, manifest), encoding="utf-8")
    artifacts.seal(scratch, manifest)
