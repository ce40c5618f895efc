"""Turn a fine-tuned model folder into an artifact that runs without torch, or an artifact into a form for others."""

from __future__ import annotations

import argparse

from ..deploy.export import export
from ..options.data import DataOptions
from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    what = "fine-tuned transformers folder; for --openvino and --triton an artifact too, also hub:owner/name"
    flags.add_model(parser, what)
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="where the artifact goes")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--openvino", action="store_true", help="write OpenVINO's own form, openvino_model.xml and .bin")
    form.add_argument(
        "--triton", nargs="?", const=True, default=False, metavar="NAME",
        help="write a Triton model repository, in which the model is called NAME (as its folder is)",
    )  # fmt: skip
    parser.add_argument("--input_dtype", help="int64 or int32: type of the graph's inputs (int64)")
    flags.add_overwrite(parser)
    flags.add_rows_and_task(parser, flags.EVAL_OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    """Export, compare, print."""
    output = arguments.output_dir
    done = export(
        flags.needed_model(arguments),
        output_dir=output,
        openvino=arguments.openvino,
        triton=arguments.triton,
        input_dtype=arguments.input_dtype,
        eval_file=flags.reader(flags.take(arguments, DataOptions), "dev"),
        overwrite=arguments.overwrite,
        progress=True,
        **flags.shared(arguments),
    )
    if arguments.json:
        console.emit({"output_dir": output, **done.as_json()})
        return 0
    print(done)
    in_triton = arguments.triton is not False
    print(f"Next: {'tritonserver --model-repository' if in_triton else 'tersely predict'} {output}")
    return 0
