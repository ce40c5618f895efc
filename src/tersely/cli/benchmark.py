"""Time models and engines against each other in one alternating run; ratios above 1 are faster than the baseline."""

from __future__ import annotations

import argparse

from ..deploy.benchmark import PIPELINE, benchmark
from ..deploy.systems import SPELLINGS
from ..engines.cpu import cpu
from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "model folders or artifacts, also hub:owner/name", several=True)
    parser.add_argument(
        "--engines", nargs="+", metavar="ENGINE", help=f"{', '.join(SPELLINGS)}; {PIPELINE} with --rows (installed)"
    )
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=[1, 16], metavar="N", help="rows a batch (1 16)")
    parser.add_argument("--lengths", nargs="+", type=int, default=[128], metavar="N", help="tokens a row (128)")
    parser.add_argument("--threads", nargs="+", type=int, metavar="N", help="threads (1, and all cores)")
    parser.add_argument("--rows", metavar="FILE", help="time answering these rows, texts to answers, instead")
    parser.add_argument("--baseline", metavar="NAME", help="'MODEL ENGINE' or ENGINE that is 1.00 (the first)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each contestant in each cell (2)")
    flags.add_rows_and_task(parser, flags.FORM_OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    """Take turns, print."""
    done = benchmark(
        flags.needed_model(arguments),
        engines=arguments.engines,
        batch_sizes=arguments.batch_sizes,
        lengths=arguments.lengths,
        threads=arguments.threads or sorted({1, cpu().cores}),
        rows=arguments.rows,
        baseline=arguments.baseline,
        seconds=arguments.seconds,
        header=arguments.header,
        progress=True,
        **flags.shared(arguments),
    )
    if arguments.json:
        console.emit(done.as_json())
        return 0
    console.speed_table(done.cpu, "model", done.cells)
    head = ["model", "engine", "size MB", "load s", "memory MB", "peak MB"]
    rows = []
    for cost in done.footprints:
        numbers = [f"{cost.size_mb:.1f}", f"{cost.load_seconds:.2f}", f"{cost.memory_mb:.0f}"]
        rows.append([cost.model, cost.engine, *numbers, f"{cost.peak_memory_mb:.0f}"])
    console.table("loading, one thread, a process of its own, its libraries included", head, rows)
    return 0
