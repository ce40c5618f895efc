"""Put what benchmarks/results holds into docs/benchmarks.md, between its markers: `make docs`."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

PAGE = Path(__file__).parent / "benchmarks.md"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
PLACE = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def page() -> str:
    """The page with every quotation as the results now are."""
    return PLACE.sub(lambda found: f"{found[1]}\n{quoted(RESULTS / found[2])}\n{found[3]}", PAGE.read_text("utf-8"))


def quoted(path: Path) -> str:
    """The command, the machine, and all from the first table on; loose lines become a list."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line]
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    machine = next((line for line in lines[1:start] if "CPU class" in line), None)
    blocks = [f"`{lines[0]}`", *([machine] if machine and "CPU class" not in lines[0] else [])]
    for is_table, group in groupby(lines[start:], lambda line: line.startswith("|")):
        blocks.append("\n".join(line if is_table else f"- {line}" for line in group))
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
