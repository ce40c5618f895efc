"""Turn a checkpoint of PaddleNLP into a transformers folder, without Paddle and without torch."""

from __future__ import annotations

import argparse
import dataclasses

from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    what = "PaddleNLP folder of an ERNIE, BERT, RoBERTa or ELECTRA (model_state.pdparams, its config, its vocabulary)"
    flags.add_model(parser, what, also=("--from_paddle",))
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="where the transformers folder goes")
    flags.add_overwrite(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Convert, print."""
    from ..models.convert import convert_paddle
    from ..models.convert.parameters import named

    done = convert_paddle(flags.needed_model(arguments), arguments.output_dir, overwrite=arguments.overwrite)
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
    print(f"Next: tersely {next_command} {done.output_dir} …")
    return 0
