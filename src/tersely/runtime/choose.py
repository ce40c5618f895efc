"""Which graph on which engine: what `tersely tune` found here, else the order that was measured for the CPU class."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import engines
from ..artifact import Artifact, Graph
from ..engines.cpu import CLASSES, cpu, threads_or_all
from ..engines.facts import ranking
from ..engines.saturation import PRODUCTS, effective_class, saturates
from ..errors import UserError
from .remember import Remembered, recall

RANK: Mapping[str, tuple[tuple[str, str], ...]] = {name: ranking(name) for name in CLASSES}
"""(precision, engine) by CPU class, the fastest first, as the engines' own facts say."""


class ClassWarning(UserWarning):
    """The artifact was not made for this machine's CPU class."""


@dataclass(frozen=True)
class Pair:
    """A graph on an engine; `cpu_class` is the machine's as that engine has it."""

    graph: Graph
    engine: str
    cpu_class: str

    @property
    def fits(self) -> bool:
        """Whether the graph is right on this class."""
        return not {"all", self.cpu_class}.isdisjoint(self.graph.cpu_classes)


def choose(
    opened: Artifact, engine: str = "auto", threads: int | None = None, precision: str | None = None
) -> tuple[Graph, str]:
    """Pick the graph and engine for this machine; the graph's `precision` is the one to run it in.

    `auto` takes what `tersely tune` remembered for so many threads, else the best by CPU class of what is installed;
    a named engine gets its own graph before one that it shares. Warns, once a folder, where no graph fits the class.
    """
    if engine != "auto":
        picked = pairs(opened, engine)
        if not picked:
            raise UserError(
                f"The artifact has no graph for engine '{engine}'.",
                where=str(opened.folder),
                hint=f"It has: {', '.join(offered_engines(opened)) or 'none'}.",
            )
    else:
        picked = _installed(opened)
        if precision is None:
            picked = remembered_first(picked, recall(opened.folder, threads_or_all(threads)))
        # An engine that lacks the precision says so itself, if there is no other.
        picked = [pair for pair in picked if precision in (None, *engines.ENGINES[pair.engine].precisions)] or picked
    best = picked[0]
    if not best.fits:
        _warn(opened.folder, best)
    return best.graph, best.engine


def pairs(opened: Artifact, engine: str | None = None) -> list[Pair]:
    """Every graph on every engine that it names, installed or not, or on one; the best for this machine first."""
    asked = [name for name in engines.installed() if engine in (None, name)]
    here = cpu().cpu_class

    def class_of(graph: Graph, name: str) -> str:
        # Float graphs do not saturate: they are loaded without a measurement.
        return effective_class(name, here) if graph.precision == "int8" and name in asked else here

    return [pair for pair in ranked(opened.manifest.graphs, class_of) if engine in (None, pair.engine)]


def offered_engines(opened: Artifact) -> list[str]:
    """Names of the engines that an artifact has graphs for."""
    return sorted({name for graph in opened.manifest.graphs for name in graph.engines})


def ranked(graphs: Sequence[Graph], class_of: Callable[[Graph, str], str]) -> list[Pair]:
    """Order graphs × engines: those that are right first, then by `RANK`, an engine's own graph, the order listed.

    >>> both = Graph("both.onnx", ("openvino", "onnxruntime"), "int8")
    >>> [pair.engine for pair in ranked([both], lambda graph, engine: "avx2")]
    ['onnxruntime', 'openvino']
    """
    found = [Pair(graph, name, class_of(graph, name)) for graph in graphs for name in dict.fromkeys(graph.engines)]
    return sorted(found, key=lambda pair: (not pair.fits, _rank(pair), pair.graph.engines[0] != pair.engine))


def remembered_first(offered: Sequence[Pair], found: Remembered | None) -> list[Pair]:
    """Put what was remembered first, in its precision, if it is still offered and as right as the best by rank."""
    for pair in offered:
        named = found is not None and (pair.graph.path, pair.engine) == (found.graph, found.engine)
        if found is not None and named and pair.fits == offered[0].fits:
            return [replace(pair, graph=replace(pair.graph, precision=found.precision)), *offered]
    return list(offered)


def _rank(pair: Pair) -> int:
    order = RANK.get(pair.cpu_class, RANK["other"])
    wanted = (pair.graph.precision, pair.engine)
    return order.index(wanted) if wanted in order else len(order)


def _installed(opened: Artifact) -> list[Pair]:
    found = [pair for pair in pairs(opened) if pair.engine in engines.installed()]
    if not found:
        names = ", ".join(offered_engines(opened)) or "it names none"
        raise UserError(
            f"No engine for this artifact is installed here ({names}).",
            where=str(opened.folder),
            hint="Install one with: pip install onnxruntime",
        )
    return found


_warned: set[Path] = set()


def _warn(folder: Path, pair: Pair) -> None:
    if folder.resolve() in _warned:
        return
    _warned.add(folder.resolve())
    wrong = pair.graph.precision == "int8" and pair.engine in PRODUCTS and saturates(pair.engine)
    made_for = ", ".join(pair.graph.cpu_classes) or "none"
    here = f"{pair.cpu_class}, where INT8 sums saturate" if wrong else pair.cpu_class
    what = (
        f"{folder}: The artifact was made for the CPU classes {made_for}; this machine is {here}. Predictions may be "
        f"wrong. See how far with: tersely check {folder}. Mend it: make the artifact anew with --cpu_classes all."
    )
    warnings.warn(what, ClassWarning, stacklevel=4)  # shown at the caller of `load`
