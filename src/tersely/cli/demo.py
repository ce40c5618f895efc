"""See all of it on a small real model, offline: fine-tune, export, compress, evaluate, benchmark. Five minutes."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from pathlib import Path

from ..engines.cpu import cpu
from ..serve.server_options import ServerOptions
from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "another encoder than the pip-carried MiniLM", needed=False)
    parser.add_argument("--output_dir", default="tersely-demo", metavar="DIR", help="where it works (tersely-demo)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and print its table."""
    from .demo_story import BATCH, LENGTH, demo

    model, output = flags.model(arguments), Path(arguments.output_dir)
    progress = console.progress()
    progress.say("The demo takes about five minutes on two cores; what an earlier run made is used again.")
    lines = demo(output, model, progress)
    if arguments.json:
        rows = [
            {
                **asdict(x.timing),
                "engine": x.engine,
                "score": x.score.value,
                "interval": x.score.interval,
                "size": x.size,
                "same_answer": x.same_answer,
            }
            for x in lines
        ]
        console.emit({"cpu": {"class": cpu().cpu_class}, "lines": rows})
        return 0
    console.table(
        f"film reviews, {lines[0].score.rows} dev rows; batch {BATCH}, length {LENGTH}, one thread, "
        f"CPU class {cpu().cpu_class}",
        ["engine", lines[0].score.metric, "95 % interval", "same answer", "MB", "ms a batch", "× torch", "spread"],
        [
            [
                line.engine,
                console.points(line.score.value),
                console.interval(line.score.interval),
                f"{100 * line.same_answer:.1f} %",
                f"{line.size / 1e6:.1f}",
                f"{1000 * line.timing.seconds:.1f}",
                f"{line.timing.ratio:.2f}",
                f"{line.timing.spread[0]:.2f} to {line.timing.spread[1]:.2f}",
            ]
            for line in lines
        ],
    )
    tersely, best = console.command(), shlex.quote(str(output / "compressed" / "best"))
    print(f"\nThe INT8 model is the folder {best}; it runs without torch. Go on with it:")
    print(f"  echo 'A quiet, moving film.' | {tersely} predict {best}")
    print(f"  {tersely} serve {best}    # its page: http://{ServerOptions.host}:{ServerOptions.port}")
    print(f"What was tried, chosen and why is told in {output / 'compressed' / 'report.html'} (for a browser).")
    return 0
