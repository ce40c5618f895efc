"""Write both reports beside the result, each whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..atomic import atomic_file
from ..errors import UserError
from .markdown import MARK, markdown
from .page import GENERATOR, page
from .run import read_run, run_of

REPORTS = ("report.html", "report.md")
_MARKS = {"report.html": f'<meta name="generator" content="{GENERATOR}">', "report.md": MARK}
_HEAD = 2000
"""Characters in which a report says that it is one."""


def write_report(folder: str | Path) -> tuple[Path, Path]:
    """Draw a finished run's reports and give their paths; what stood there is replaced if it was a report."""
    folder = Path(folder)
    run = read_run(folder)
    paths = tuple(folder / name for name in REPORTS)
    for path in paths:
        if path.exists() and not is_report(path):
            what = "This file was not written by tersely, and is not replaced."
            raise UserError(what, where=str(path), hint="Move it.")
    try:
        for path, text in zip(paths, (page(run), markdown(run)), strict=True):
            with atomic_file(path) as stream:
                stream.write(text.encode())
    except OSError as error:
        raise UserError(f"The report cannot be written: {error.strerror}.", where=str(folder)) from None
    return paths[0], paths[1]


def draw_reports(content: Any) -> dict[str, str]:
    """The reports by file name, of what a `result.json` holds."""
    run = run_of(content)
    return dict(zip(REPORTS, (page(run), markdown(run)), strict=True))


def is_report(path: Path) -> bool:
    """Whether a file is a report that this wrote."""
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return _MARKS[path.name] in stream.read(_HEAD)
    except OSError:
        return False
