"""What is needed to run it again: command, files, options, versions, machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from .run import Run
from .table import Column, Line, Table


def command(run: Run) -> str | None:
    """The command as it was typed, one option a line; None for runs from Python or of older versions."""
    typed = run.settings.get("command")
    if not isinstance(typed, str):
        return None
    try:
        words = shlex.split(typed)
    except ValueError:
        return typed
    lines = [[]] if not words else [[words[0]]]
    for word in words[1:]:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n    ".join(" ".join(line) for line in lines)


def facts(run: Run) -> Table:
    """Rows, machine and versions."""
    told: dict[str, Any] = {"task": run.task.replace("_", " ")}
    counts = {"train": "trained", "calibration": "calibrated", "scoring": "scored and chose", "test": "tested"}
    rows = [f"{run.rows[name]:,} {what}" for name, what in counts.items() if run.rows.get(name)]
    told["rows"] = ", ".join(rows)
    for name, file in _mapping(run.settings.get("files")).items():
        told[f"{name} rows from"] = file
    seed = _mapping(run.settings.get("options")).get("seed")
    told["seed"] = "" if seed is None else seed
    told["CPU"] = ", ".join(str(part) for part in (run.cpu.get("name"), _class(run)) if part)
    told["system"] = run.settings.get("system") or ""
    told["FP32 graph, sha256"] = run.fp32.sha256
    told["tersely"] = run.tersely_version
    told["Python"] = run.settings.get("python") or ""
    told |= _mapping(run.settings.get("packages"))
    lines = [Line([name, _words(value)]) for name, value in told.items() if value not in ("", None)]
    return Table([Column("what"), Column("value")], lines)


def options(run: Run) -> Table | None:
    """All options of the run, those that were set first; None for older runs."""
    found = _mapping(run.settings.get("options"))
    if not found:
        return None
    given = set(run.settings.get("given") or ())
    lines = [Line([name, _words(found[name]), "set" if name in given else ""]) for name in found]
    lines.sort(key=lambda line: line.cells[2] != "set")
    for part in ("training", "task_options", "columns"):
        lines += [Line([name, _words(value), "set"]) for name, value in _mapping(run.settings.get(part)).items()]
    return Table([Column("option"), Column("value"), Column("")], lines)


def _class(run: Run) -> str:
    kind = run.cpu.get("class")
    return f"class {kind}" if kind else ""


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _words(value: Any) -> str:
    """A value as one would type it.

    >>> _words(["mse", "KL"]), _words(None), _words(True)
    ('mse KL', 'none', 'true')
    """
    if isinstance(value, (list, tuple)):
        return " ".join(map(_words, value)) or "none"
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return str(value)
