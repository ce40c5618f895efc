"""Turn a fine-tuned model folder into an artifact that runs without torch."""

from __future__ import annotations

import argparse

from ..options import DataOptions, TaskOptions
from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--model_name_or_path", required=True, metavar="DIR", help="fine-tuned transformers folder")
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="where the artifact goes")
    parser.add_argument("--input_dtype", default="int64", help="int64 or int32: type of the graph's inputs (int64)")
    parser.add_argument("--overwrite_output_dir", action="store_true", help="replace an earlier result")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    flags.add_options(parser, DataOptions, only=flags.EVAL_OPTIONS)
    flags.add_options(parser, TaskOptions)


def run(arguments: argparse.Namespace) -> int:
    """Export, compare, print."""
    from ..export import export
    from ..folder import open_folder
    from ..whole import check_destination

    data, options = flags.take(arguments, DataOptions), flags.take(arguments, TaskOptions)
    check_destination(arguments.output_dir, overwrite=arguments.overwrite_output_dir)
    folder = open_folder(arguments.model_name_or_path, options)
    rows = flags.rows(data, "dev")
    examples = folder.task.read(rows, flags.columns(data), labelled=True) if rows is not None else None
    done = export(
        folder,
        arguments.output_dir,
        input_dtype=arguments.input_dtype,
        examples=examples,
        overwrite=arguments.overwrite_output_dir,
        progress=console.progress(),
    )
    size = sum(done.artifact.loaded_bytes(graph) for graph in done.artifact.manifest.graphs) / 1e6
    if arguments.json:
        console.emit(
            {
                "output_dir": str(arguments.output_dir),
                "task": done.artifact.manifest.task["name"],
                "max_abs_logit_difference": done.parity,
                "size_mb": size,
                "score": done.artifact.manifest.score,
            }
        )
        return 0
    apart = ", ".join(f"{name} {value:.1e}" for name, value in done.parity.items())
    print(f"{arguments.output_dir}: {done.artifact.manifest.task['name']}, graph {size:.1f} MB")
    print(f"largest difference of a logit from torch: {apart}")
    if done.score is not None:
        print(f"{done.score.metric} {console.points(done.score.value)} ({console.interval(done.score.interval)})")
    print(f"Next: laconic predict {arguments.output_dir}")
    return 0
