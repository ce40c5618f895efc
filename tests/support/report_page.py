"""A report read back by the parser of Python itself, and held against the result that it was drawn from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

VOID = {"meta", "link", "br"}


@dataclass
class Node:
    """An element with its attributes; children are elements and texts."""

    name: str
    attributes: dict[str, str]
    children: list[Node | str] = field(default_factory=list)

    def all(self, name: str, **wanted: str) -> Iterator[Node]:
        """Elements inside by name and class."""
        for child in self.children:
            if isinstance(child, Node):
                classes = child.attributes.get("class", "").split()
                if name in (child.name, "*") and all(word in classes for word in wanted.values()):
                    yield child
                yield from child.all(name, **wanted)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class Reader(HTMLParser):
    """Builds the tree; an element that is not closed, or closed twice, is an error."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("root", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"<{tag}> has an attribute twice"
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(text: str) -> Node:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root]
    return reader.root


def check_reports(folder: Path) -> Node:
    """Both reports of a finished run say what its result says, and load nothing; gives the page."""
    content = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = parse(text)
    check_loads_nothing(page)
    check_table(page, content)
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))  # noqa: S314
    drawings = [drawing for drawing in page.all("svg") if drawing.attributes.get("role") == "group"]
    assert len(drawings) == 2  # for wide screens and for narrow ones
    for drawing in drawings:
        check_plot(drawing, content)
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    table = markdown.partition("\n## Candidates\n")[2].partition("\n## ")[0].splitlines()
    for candidate in content["candidates"]:
        (line,) = (line for line in table if re.match(rf"\| {re.escape(candidate['name'])}(,| \(|\s\|)", line))
        for said in numbers(candidate, content):
            assert said in line.replace("−", "-"), (said, line)
    return page


def check_loads_nothing(page: Node) -> None:
    for node in page.all("*"):
        for name, value in node.attributes.items():
            assert name not in ("src", "srcset", "action", "xlink:href", "poster"), node
            assert not name.startswith("on"), node
            if name == "href":
                assert value.startswith("data:"), value
            assert "url(" not in value.lower(), value
    assert "url(" not in next(page.all("style")).text
    assert "@import" not in next(page.all("style")).text
    for word in ("fetch", "XMLHttpRequest", "import(", "http:", "https:", "innerHTML"):
        assert word not in next(page.all("script")).text
    assert len(list(page.all("script"))) == 1
    (policy,) = (meta for meta in page.all("meta") if meta.attributes.get("http-equiv") == "Content-Security-Policy")
    assert policy.attributes["content"].startswith("default-src 'none'; ")


def numbers(model: dict[str, Any], content: dict[str, Any]) -> list[str]:
    """What a line must say of a model, computed anew from the result."""

    def score(value: float) -> str:
        text = f"{100 * value:.2f}" if content.get("fraction", True) else f"{value:.4g}"
        return text if float(text) else text.lstrip("-")

    said = [f"{model['size'] / 1e6:.{1 if model['size'] >= 1e6 else 2}f}"]
    said.append("not scored" if model["score"] is None else score(model["score"]))
    if model.get("drop") is not None:
        said.append(score(model["drop"]))
    if model.get("drop_interval"):
        said.append(" to ".join(map(score, model["drop_interval"])))
    if model.get("same_answer") is not None:
        said.append(f"{100 * model['same_answer']:.2f}")
    said += [f"{speed['ratio']:.2f}" for speed in model.get("speed_by_batch", {}).values()]
    said += [f"{model['speedup']['ratio']:.2f}"] if model.get("speedup") else []
    return said


def check_table(page: Node, content: dict[str, Any]) -> None:
    (table,) = page.all("table", wanted="sortable")
    lines = list(next(table.all("tbody")).all("tr"))
    assert len(lines) == len(content["candidates"]) + 1
    by_name = {line.attributes.get("data-name", "FP32"): line for line in lines}
    for model in ({**content["fp32"], "name": "FP32"}, *content["candidates"]):
        line = by_name[model["name"]]
        cells = [[part.text for part in cell.all("*") if part.name in ("bdi", "small")] for cell in line.all("*")]
        said = {text.replace("−", "-") for cell in cells for text in cell}
        assert set(numbers(model, content)) <= said, (numbers(model, content), said)
        assert (line.attributes.get("class") == "chosen") == (model["name"] == content["best"])


def check_plot(drawing: Node, content: dict[str, Any]) -> None:
    """Every model is a point, at the place that the ticks of the axes give it, its area as its size."""
    points = {point.attributes["data-name"]: point for point in drawing.all("g", wanted="point")}
    models = {"FP32": content["fp32"], **{candidate["name"]: candidate for candidate in content["candidates"]}}
    assert points.keys() == models.keys()
    speeds, values = ticks(drawing)
    largest = max(model["size"] for model in models.values())
    radii = {}
    for name, point in points.items():
        model = models[name]
        trained = bool({"dynabert", "qat"} & set(model.get("strategy", "").split("+")))
        x, y, radius = placed(point, trained)
        ratios = [speed["ratio"] for speed in model.get("speed_by_batch", {}).values()] or [1.0]
        speed = math.exp(sum(map(math.log, ratios)) / len(ratios))
        if model.get("speedup"):
            speed = model["speedup"]["ratio"]
        assert abs(x - along(speeds, speed)) < 1, name
        value = model["score"] if content["fp32"]["score"] is not None else model.get("same_answer", 1.0)
        shown = 100 * value if content.get("fraction", True) or content["fp32"]["score"] is None else value
        assert abs(y - along(values, shown)) < 1, name
        radii[name] = radius, model["size"]
        assert ("trained" in point.attributes["class"]) == trained
        assert name in point.attributes["aria-label"]
        assert next(point.all("title")).text == point.attributes["aria-label"]
        assert point.attributes["tabindex"] == "0"
        chosen = name == content["best"]
        assert ("chosen" in point.attributes["class"]) == chosen == bool(list(point.all("*", wanted="ring")))
    top = max(radius for radius, _ in radii.values())
    for radius, size in radii.values():
        assert abs(radius - max(5.0, top * math.sqrt(size / largest))) < 0.2


def ticks(drawing: Node) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Of both axes the places that bear a number, in pixels, with that number: speeds, then scores."""
    texts = list(next(drawing.all("g", wanted="grid")).all("text"))
    speeds = [
        (float(text.attributes["x"]), float(text.text.removesuffix(" ×"))) for text in texts if text.text.endswith(" ×")
    ]
    values = [
        (float(text.attributes["y"]) - 4, float(text.text.replace("−", "-")))
        for text in texts
        if text.attributes["text-anchor"] == "end"
    ]
    return speeds, values


def placed(point: Node, trained: bool) -> tuple[float, float, float]:
    """Middle of a point, and the radius of the circle of its area: models that were trained are squares."""
    (dot,) = point.all("rect" if trained else "circle", wanted="dot")
    if not trained:
        x, y, radius = (float(dot.attributes[name]) for name in ("cx", "cy", "r"))
        return x, y, radius
    x, y, wide, high = (float(dot.attributes[name]) for name in ("x", "y", "width", "height"))
    assert wide == high
    return x + wide / 2, y + high / 2, wide / math.sqrt(math.pi)


def along(ticks: list[tuple[float, float]], value: float) -> float:
    """The pixel of a value, from two ticks of an axis."""
    (first, low), (last, high) = ticks[0], ticks[-1]
    return first + (value - low) / (high - low) * (last - first)
