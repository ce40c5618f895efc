"""Put what benchmarks/results holds into the benchmark pages, between their markers: `make docs`."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

DOCS = Path(__file__).parent
PAGES = (DOCS / "benchmarks.md", *sorted((DOCS / "benchmarks").glob("*.md")))
RESULTS = DOCS.parent / "benchmarks" / "results"
PLACE = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def page(path: Path) -> str:
    """A page with every quotation as the results now are."""
    return PLACE.sub(lambda found: f"{found[1]}\n{quoted(RESULTS / found[2])}\n{found[3]}", path.read_text("utf-8"))


def quoted(path: Path) -> str:
    """The command, the machine, and all from the first table on; loose lines become a list. Plain text as it is."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        return f"```\n{text.rstrip()}\n```\n"
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    machine = next((line for line in lines[1:start] if "CPU class" in line), None)
    blocks = [f"`{line}`" for line in lines[: min(start, 1)]]
    if machine and "CPU class" not in lines[0]:
        blocks.append(machine)
    for kind, group in groupby(lines[start:], lambda line: line[:1] == "|" if line else None):
        if kind is not None:
            blocks.append("\n".join(line if kind else f"- {line}" for line in group))
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path), encoding="utf-8")
