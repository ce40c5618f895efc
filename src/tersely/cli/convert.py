"""Turn a checkpoint of PaddleNLP into a transformers folder, without Paddle and without torch."""

from __future__ import annotations

import argparse
import dataclasses

from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    what = "PaddleNLP folder of an ERNIE, BERT, RoBERTa or ELECTRA (model_state.pdparams, its config, its vocabulary)"
    parser.add_argument("--from_paddle", required=True, metavar="DIR", help=what)
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="where the transformers folder goes")
    parser.add_argument("--overwrite_output_dir", action="store_true", help="replace an earlier result")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Convert, print."""
    from ..convert import convert_paddle
    from ..convert.parameters import named

    overwrite = arguments.overwrite_output_dir
    done = convert_paddle(arguments.from_paddle, arguments.output_dir, overwrite=overwrite)
    if arguments.json:
        console.emit({**dataclasses.asdict(done), "output_dir": str(done.output_dir)})
        return 0
    labels = f", {len(done.labels)} labels" if done.labels else ""
    print(f"{done.output_dir}: {done.architecture}{labels}, {done.parameters / 1e6:.1f} million parameters")
    if done.left_out:
        print(f"left out, since {done.architecture} has no such part: {named(list(done.left_out))}")
    if done.rows_without_token:
        print(f"{done.rows_without_token} rows of the table of words belong to no token of the vocabulary")
    next_command = "finetune" if done.architecture.endswith("Model") else "compress"
    print(f"Next: tersely {next_command} --model_name_or_path {done.output_dir} …")
    return 0
