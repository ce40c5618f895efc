"""Score a model folder or an artifact on labelled rows, in the engine that will run it."""

from __future__ import annotations

import argparse

from ..deploy.evaluate import evaluate
from ..deploy.systems import SPELLINGS
from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "model folder or artifact, also hub:owner/name")
    parser.add_argument("--engine", default="auto", help=f"auto, {', '.join(SPELLINGS)}")
    parser.add_argument("--against", metavar="DIR", help="a second model; the drop from it is shown")
    parser.add_argument("--against_engine", metavar="ENGINE", help="the second model's engine (auto)")
    parser.add_argument("--threads", type=int, help="threads (all cores)")
    parser.add_argument("--batch_size", type=int, default=16, help="rows a batch (16)")
    flags.add_rows_and_task(parser, flags.EVAL_OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    """Score, compare, print."""
    found = evaluate(
        flags.needed_model(arguments),
        eval_file=flags.needed_reader(arguments, "dev"),
        engine=arguments.engine,
        against=arguments.against,
        against_engine=arguments.against_engine,
        threads=arguments.threads,
        batch_size=arguments.batch_size,
        progress=True,
        **flags.shared(arguments),
    )
    if arguments.json:
        console.emit(found.as_json())
        return 0
    console.table(found.title, *found.table)
    if found.drop_line:
        print(found.drop_line)
    return 0
