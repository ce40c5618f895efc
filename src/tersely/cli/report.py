"""Draw what a compress run found as one page, report.html, and as report.md for terminals and pull requests."""

from __future__ import annotations

import argparse

from ..report import REPORTS, write_report
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", metavar="DIR", help="the --output_dir of a finished 'tersely compress'")
    parser.add_argument("--json", action="store_true", help="print one JSON object: the paths")


def run(arguments: argparse.Namespace) -> int:
    """Write, print where."""
    paths = write_report(arguments.folder)
    if arguments.json:
        console.emit({name.removeprefix("report."): str(path) for name, path in zip(REPORTS, paths, strict=True)})
        return 0
    for path in paths:
        print(path)
    return 0
