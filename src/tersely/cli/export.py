"""Turn a fine-tuned model folder into an artifact that runs without torch, or an artifact into a form for others."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import artifact as artifacts
from ..artifact import Artifact
from ..errors import UserError, existing
from ..options.data import DataOptions
from ..runtime.predictor import local_folder
from ..tasks.options import TaskOptions
from . import arguments as flags
from . import console

if TYPE_CHECKING:
    from ..deploy.layouts import Layout
    from ..measure.score import Score


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    what = "fine-tuned transformers folder; for --openvino and --triton an artifact too, also hub:owner/name"
    flags.add_model(parser, what)
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="where the artifact goes")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--openvino", action="store_true", help="write OpenVINO's own form, openvino_model.xml and .bin")
    form.add_argument(
        "--triton", nargs="?", const="", metavar="NAME",
        help="write a Triton model repository, in which the model is called NAME (as its folder is)",
    )  # fmt: skip
    parser.add_argument("--input_dtype", help="int64 or int32: type of the graph's inputs (int64)")
    flags.add_overwrite(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    flags.add_options(parser, DataOptions, only=flags.EVAL_OPTIONS)
    flags.add_options(parser, TaskOptions)


def run(arguments: argparse.Namespace) -> int:
    """Export, compare, print."""
    data, options = flags.take(arguments, DataOptions), flags.take(arguments, TaskOptions)
    source = existing(local_folder(flags.needed_model(arguments)), "model folder")
    if artifacts.is_artifact(source):
        flags.refuse_set(options, {field.name for field in fields(options)}, "a model folder")
        flags.refuse_set(arguments, {"input_dtype"}, "a model folder")
    if arguments.openvino or arguments.triton is not None:
        return _lay_out(arguments, source, data, options)
    if artifacts.is_artifact(source):
        raise UserError("This is an artifact already.", where=str(source), hint="Other forms: --openvino, --triton.")
    return _export(arguments, source, data, options)


def _export(arguments: argparse.Namespace, source: Path, data: DataOptions, options: TaskOptions) -> int:
    from ..atomic import check_destination
    from ..deploy.export import export
    from ..models.folder import open_folder

    check_destination(arguments.output_dir, overwrite=arguments.overwrite)
    folder = open_folder(source, options)
    done = export(
        folder,
        arguments.output_dir,
        input_dtype=arguments.input_dtype or "int64",
        examples=_examples(folder.task, data),
        overwrite=arguments.overwrite,
        progress=console.progress(),
    )
    _show(arguments, done.artifact, done.parity, done.score, "torch", f"tersely predict {arguments.output_dir}")
    return 0


def _lay_out(arguments: argparse.Namespace, source: Path, data: DataOptions, options: TaskOptions) -> int:
    from .. import engines
    from ..atomic import check_destination
    from ..deploy.layouts import OpenVinoLayout, TritonLayout, lay_out
    from ..tasks import from_json

    layout: Layout = OpenVinoLayout()
    if arguments.triton is not None:
        layout = TritonLayout(arguments.triton or source.resolve().name)
    # Before the export, which takes long.
    check_destination(layout.place(Path(arguments.output_dir)), overwrite=arguments.overwrite)
    engines.warm(layout.engine)
    with _opened(arguments, source, data, options) as opened:
        done = lay_out(
            opened,
            arguments.output_dir,
            layout,
            examples=_examples(from_json(opened.manifest.task), data),
            overwrite=arguments.overwrite,
            progress=console.progress(),
        )
    following = f"tersely predict {arguments.output_dir}"
    if arguments.triton is not None:
        following = f"tritonserver --model-repository {arguments.output_dir}"
    _show(arguments, done.artifact, {layout.engine: done.difference}, done.score, done.source.path, following)
    return 0


@contextmanager
def _opened(arguments: argparse.Namespace, source: Path, data: DataOptions, options: TaskOptions) -> Iterator[Artifact]:
    """The artifact that was named, or that of the model folder, which is gone afterwards."""
    if artifacts.is_artifact(source):
        yield artifacts.read(source)
        return
    from ..deploy.export import export
    from ..deploy.probe import probe_examples
    from ..models.folder import open_folder

    folder = open_folder(source, options)
    examples = _examples(folder.task, data)
    # The rows of the probe alone: what is scored is the form that is written.
    probed = probe_examples(folder.task, examples) if examples else None
    with tempfile.TemporaryDirectory(prefix="tersely-") as scratch:
        place = Path(scratch) / source.resolve().name
        dtype = arguments.input_dtype or "int64"
        yield export(folder, place, input_dtype=dtype, examples=probed, progress=console.progress()).artifact


def _examples(task: Any, data: DataOptions) -> list[Any] | None:
    rows = flags.rows(data, "dev")
    return task.read(rows, flags.columns(data), labelled=True) if rows is not None else None


def _show(
    arguments: argparse.Namespace,
    opened: Artifact,
    apart: dict[str, float],
    scored: Score | None,
    reference: str,
    following: str,
) -> None:
    size = sum(opened.loaded_bytes(graph) for graph in opened.manifest.graphs) / 1e6
    task = opened.manifest.task["name"]
    if arguments.json:
        console.emit(
            {
                "output_dir": str(arguments.output_dir),
                "graph": opened.manifest.graphs[0].path,
                "task": task,
                "max_abs_logit_difference": apart,
                "size_mb": size,
                "score": opened.manifest.score,
            }
        )
        return
    print(f"{opened.folder}: {task}, graph {size:.1f} MB")
    print(
        f"largest difference of a logit from {reference}: "
        + ", ".join(f"{name} {value:.1e}" for name, value in apart.items())
    )
    if scored is not None:
        print(f"{scored.metric} {console.points(scored.value)} ({console.interval(scored.interval)})")
    print(f"Next: {following}")
