"""Time every graph of an artifact on every engine of this machine; from then on `auto` takes the fastest."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ..measure.benchmark import threads_text
from ..measure.tune import BATCH_SIZES, Tuned, tune
from ..runtime.predictor import local_folder
from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "artifact, also hub:owner/name")
    parser.add_argument("--threads", nargs="+", type=int, metavar="N", help="threads (1, and all cores)")
    parser.add_argument(
        "--batch_sizes", nargs="+", type=int, default=list(BATCH_SIZES), metavar="N", help="rows a batch (1 16)"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each contestant in each cell (2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Measure, remember, print."""
    done = tune(
        local_folder(flags.needed_model(arguments)),
        threads=arguments.threads,
        batch_sizes=arguments.batch_sizes,
        seconds=arguments.seconds,
        progress=console.progress(),
    )
    if arguments.json:
        console.emit(as_json(done))
    else:
        _print(done)
    return 0


def as_json(done: Tuned) -> dict[str, Any]:
    """Give plain types, cells as `tersely benchmark` has them but by graph."""
    cells = []
    for cell in done.cells:
        timing = asdict(cell.timing)
        place = {"graph": timing.pop("model"), "threads": cell.threads, "batch": cell.batch, "length": cell.length}
        cells.append({**place, **timing})
    return {
        "cpu": {"class": done.cpu.cpu_class, "name": done.cpu.name, "cores": done.cpu.cores},
        "cells": cells,
        "chosen": [asdict(chosen) for chosen in done.chosen],
        "left_out": dict(done.left_out),
        "remembered_in": str(done.place),
    }


def _print(done: Tuned) -> None:
    console.speed_table(done.cpu, "graph", done.cells)
    for name, reason in done.left_out.items():
        print(f"left out: {name}: {reason}")
    for chosen in done.chosen:
        same = f"{chosen.graph} {chosen.engine}" == chosen.before
        gain = "as before" if same else f"{chosen.gain:.2f} × {chosen.before}"
        print(f"{threads_text(chosen.threads)}: {chosen.graph} on {chosen.engine}, {gain}")
    print(f"Remembered in {done.place}: engine 'auto' takes it from now on.")
