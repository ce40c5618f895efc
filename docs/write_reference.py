"""Write the pages of docs/reference that the code itself tells: `make docs`."""

from __future__ import annotations

import importlib
from pathlib import Path

FOLDER = Path(__file__).parent / "reference"
PAGES = {"commands.md": "describe_commands", "options.md": "describe_options", "python.md": "describe_python"}
"""Each page and the file that writes it."""


def page(name: str) -> str:
    """What a page ought to say; all but the commands bring in torch."""
    text: str = importlib.import_module(PAGES[name]).page()
    return text


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).write_text(page(name), encoding="utf-8")
