"""Dynamic INT8 for those who stay in torch: a folder that `tersely.load_model` reads."""

from __future__ import annotations

from pathlib import Path

MANIFEST = "tersely_quantized.json"


def is_dynamic(folder: str | Path) -> bool:
    """Whether `write_dynamic` wrote this folder; imports no torch to tell."""
    return (Path(folder) / MANIFEST).is_file()
