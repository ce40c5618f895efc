"""What commands print: tables drawn on a terminal and aligned elsewhere, JSON, and the command itself."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..engines.cpu import Cpu
from ..measure.benchmark import Cell
from ..measure.tables import aligned, cells, stand_right
from ..progress import Progress, shown


def progress() -> Progress:
    """A bar on a terminal, lines elsewhere."""
    return shown(True)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table: drawn on a terminal, aligned by blanks elsewhere. Numbers stand right."""
    if not sys.stdout.isatty():
        print(f"{title}\n{aligned(head, rows)}")
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    texts = cells(rows)
    drawn = Table(title=escape(title), title_justify="left")
    for name, is_right in zip(head, stand_right(texts, len(head)), strict=True):
        drawn.add_column(escape(name), justify="right" if is_right else "left")
    for row in texts:
        drawn.add_row(*map(escape, row))
    Console().print(drawn)


def speed_table(here: Cpu, what: str, timed: Sequence[Cell]) -> None:
    """Print timings; `what` is timed: models or graphs. Rows a second where rows were answered."""
    head = [what, "engine", "threads", "batch", "length", "rows/s" if timed[0].rows else "ms", "×", "spread"]
    rows = []
    for cell in timed:
        timing = cell.timing
        speed = f"{cell.rows / timing.seconds:.1f}" if cell.rows else f"{1000 * timing.seconds:.2f}"
        place = [cell.threads, cell.batch, "mixed" if cell.rows else cell.length]
        spread = f"{timing.spread[0]:.2f} to {timing.spread[1]:.2f}"
        rows.append([timing.model, timing.engine, *place, speed, f"{timing.ratio:.2f}", spread])
    table(f"speed on CPU class {here.cpu_class} ({here.name}, {here.cores} cores)", head, rows)


def emit(content: Any) -> None:
    """Print one JSON object."""
    print(json.dumps(content, ensure_ascii=False, indent=2))


def command() -> str:
    """How the user's shell starts this very `tersely`: by its path where PATH leads to none or to another."""
    script = Path(sysconfig.get_path("scripts")) / "tersely"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m tersely"
    found = shutil.which("tersely")
    if found and Path(found).samefile(script):
        return "tersely"
    near = os.path.relpath(script)
    return shlex.quote(str(script) if near.startswith(os.pardir) else near)
