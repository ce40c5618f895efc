"""Draw the house, `docs/images/house.svg`: rooms in the layers of pyproject's contract, the way of a compress run.

Texts are the first sentence of each room's docstring. `tests/test_import_directions.py` compares the file with this.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from html import escape
from itertools import pairwise
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tersely"
PICTURE = ROOT / "docs" / "images" / "house.svg"
WIDTH, MARGIN, GAP = 1180, 16, 10
HEIGHT_OF_ROOM, HEIGHT_OF_LONE = 46, 58
LETTER = 5.6
"""Points that a letter of the small text takes, at the most usual."""

WAY = (
    ("cli", "the words typed"),
    ("options", "read and checked: a Request"),
    ("compression", "the story"),
    ("models", "the folder, opened"),
    ("graphs", "its FP32 graph"),
    ("prune", "smaller models"),
    ("training", "distilled"),
    ("quantize", "ranges and integers: a QuantMap"),
    ("deploy", "a candidate's folder"),
    ("measure", "scored and timed"),
    ("engines", "in the engine that will run it"),
    ("report", "the page"),
)
"""The rooms that `compress --strategy dynabert+ptq` passes through, in the order of their first work."""

LEGEND = "A room imports only rooms below it. Dashed: no file of it imports torch. Numbered: the way of a compress run."

STYLE = """
text { font-family: system-ui, sans-serif; fill: #1d2b2a; }
.name { font-size: 14px; font-weight: 600; }
.says { font-size: 10.5px; fill: #47605d; }
.room { fill: #eef6f4; stroke: #3c8d82; }
.way { fill: #d6ece6; }
.path { fill: none; stroke: #0f766e; stroke-width: 1.5; opacity: 0.45; }
.number { fill: #0f766e; }
.count { font-size: 10px; font-weight: 700; fill: #ffffff; text-anchor: middle; }
.list { font-size: 11.5px; }
"""


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(), encoding="utf-8")


def draw() -> str:
    """The picture as SVG."""
    numbers = {room: place for place, (room, _) in enumerate(WAY, 1)}
    boxes, parts, stops, top = [], [], {}, MARGIN
    for layer in layers():
        height = HEIGHT_OF_LONE if len(layer) > 4 else HEIGHT_OF_ROOM
        width = (WIDTH - 2 * MARGIN - GAP * (len(layer) - 1)) / len(layer)
        for place, room in enumerate(layer):
            left = MARGIN + place * (width + GAP)
            size = (width, height)
            boxes.append(_box(room, left, top, size, on_the_way=room in numbers))
            parts += _texts(room, left, top, size)
            stops[room] = (left + width - 14, top + 14)
        top += height + GAP
    boxes.append(_path([stops[room] for room, _ in WAY]))
    parts += [_number(*stops[room], number) for room, number in numbers.items()]
    top += 12
    parts.append(f'<text class="says" x="{MARGIN}" y="{top}">{LEGEND}</text>')
    top += 22
    for place, (room, what) in enumerate(WAY):
        left, line = MARGIN + place % 4 * (WIDTH - 2 * MARGIN) / 4, top + place // 4 * 19
        parts.append(_number(left + 8, line - 4, place + 1))
        parts.append(f'<text class="list" x="{left + 22:.0f}" y="{line}">{escape(room)}: {escape(what)}</text>')
    height = top + (len(WAY) - 1) // 4 * 19 + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    title = "<title>The rooms of Tersely: each imports only rooms below it</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *boxes, *parts, "</svg>", ""])


def layers() -> list[list[str]]:
    """Names of rooms by layer, as the contract has them, top to bottom."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return [re.findall(r"tersely\.(\w+)", layer) for layer in contracts[0]["layers"]]


def says(room: str) -> str:
    """The first sentence of what a room says of itself."""
    place = PACKAGE / room / "__init__.py"
    text = (place if place.is_file() else PACKAGE / f"{room}.py").read_text(encoding="utf-8")
    line = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0].replace("`", "")
    return re.split(r"(?<=[a-z])\. ", line)[0].removesuffix(".")


def needs_torch(room: str) -> bool:
    """Whether any file of the room imports torch."""
    place = PACKAGE / room
    files = place.rglob("*.py") if place.is_dir() else [PACKAGE / f"{room}.py"]
    return any(re.search(r"^(import torch|from torch)\b", file.read_text(encoding="utf-8"), re.M) for file in files)


def _box(room: str, left: float, top: float, size: tuple[float, float], *, on_the_way: bool) -> str:
    kind = "room way" if on_the_way else "room"
    edge = "" if needs_torch(room) else ' style="stroke-dasharray: 4 2"'
    place = f'x="{left:.1f}" y="{top}" width="{size[0]:.1f}" height="{size[1]}" rx="5"'
    return f'<rect class="{kind}" {place}{edge}/>'


def _texts(room: str, left: float, top: float, size: tuple[float, float]) -> list[str]:
    parts = [f'<text class="name" x="{left + 8:.1f}" y="{top + 16}">{escape(room)}</text>']
    most = int((size[1] - 20) // 12)
    lines = textwrap.wrap(says(room), int((size[0] - 34) / LETTER), max_lines=most, placeholder=" …")
    for number, line in enumerate(lines):
        parts.append(f'<text class="says" x="{left + 8:.1f}" y="{top + 29 + 12 * number}">{escape(line)}</text>')
    return parts


def _path(stops: list[tuple[float, float]]) -> str:
    """A line through the numbers, bent to the left so that it can be told from the edges of rooms."""
    drawn = f"M{stops[0][0]:.1f},{stops[0][1]}"
    for (x, y), (to_x, to_y) in pairwise(stops):
        bend = min(x, to_x) - 12 - abs(to_y - y) / 6
        drawn += f" C{bend:.1f},{y} {bend:.1f},{to_y} {to_x:.1f},{to_y}"
    return f'<path class="path" d="{drawn}"/>'


def _number(x: float, y: float, number: int) -> str:
    circle = f'<circle class="number" cx="{x:.1f}" cy="{y}" r="8"/>'
    return f'{circle}<text class="count" x="{x:.1f}" y="{y + 3.5}">{number}</text>'


if __name__ == "__main__":
    main()
