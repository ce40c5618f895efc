"""Which graph on which engine: what `tersely tune` found here, else the order that was measured for the CPU class.

What was found is kept in the user's cache, never in the artifact, which other machines run too.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import engines
from ..artifact import MANIFEST, Artifact, Graph, sha256
from ..engines.cpu import cpu, threads_or_all
from ..engines.saturation import PRODUCTS, effective_class, saturates
from ..errors import Failure, UserError, fill

FILE = "tune.json"


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


@dataclass(frozen=True)
class Remembered:
    """The graph, the engine and the arithmetic that were the fastest here."""

    graph: str
    engine: str
    precision: str


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
            hint = f"It has: {', '.join(offered_engines(opened)) or 'none'}."
            raise UserError(f"The artifact has no graph for engine '{engine}'.", where=str(opened.folder), hint=hint)
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
    usable = [name for name in engines.installed() if engine in (None, name)]
    here = cpu().cpu_class

    def class_of(graph: Graph, name: str) -> str:
        # Float graphs do not saturate: they are loaded without a measurement.
        return effective_class(name, here) if graph.precision == "int8" and name in usable else here

    return [pair for pair in ranked(opened.manifest.graphs, class_of) if engine in (None, pair.engine)]


def offered_engines(opened: Artifact) -> list[str]:
    """Names of the engines that an artifact has graphs for."""
    return sorted({name for graph in opened.manifest.graphs for name in graph.engines})


def ranked(graphs: Sequence[Graph], class_of: Callable[[Graph, str], str]) -> list[Pair]:
    """Order graphs × engines: those that are right first, then by rank, an engine's own graph, the order listed.

    >>> both = Graph("both.onnx", ("openvino", "onnxruntime"), "int8")
    >>> [pair.engine for pair in ranked([both], lambda graph, engine: "avx2")]
    ['onnxruntime', 'openvino']
    """
    found = [Pair(graph, name, class_of(graph, name)) for graph in graphs for name in dict.fromkeys(graph.engines)]
    return sorted(found, key=lambda pair: (not pair.fits, _rank(pair), pair.graph.engines[0] != pair.engine))


def remembered_first(offered: Sequence[Pair], found: Remembered | None) -> list[Pair]:
    """Put what was remembered first, in its precision, if it is still offered and as right as the best by rank."""
    for pair in offered:
        if found and (pair.graph.path, pair.engine, pair.fits) == (found.graph, found.engine, offered[0].fits):
            return [replace(pair, graph=replace(pair.graph, precision=found.precision)), *offered]
    return list(offered)


def recall(folder: Path, threads: int) -> Remembered | None:
    """What was found for this artifact with so many threads on this machine, its engines as they are now."""
    entry = _read(cache_folder() / FILE).get(_key(_circumstances(folder, threads)), {})
    try:
        return fill(Remembered, entry.get("choice"), "The choice")
    except (AttributeError, UserError):  # damaged by hand: as good as nothing
        return None


def remember(folder: Path, choices: Mapping[int, Remembered]) -> Path:
    """Write what was found, by number of threads; gives the file. Of two who write at once, the last one's holds."""
    place = prepare()
    content = _read(place)
    for threads, choice in choices.items():
        circumstances = _circumstances(folder, threads)
        content[_key(circumstances)] = {"choice": asdict(choice), "for": circumstances}
    with writing_cache(place):
        write_cached(place, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
    return place


def prepare() -> Path:
    """The file to write to, its folder made: asked before a long measurement."""
    place = cache_folder() / FILE
    with writing_cache(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place.parent).close()
    return place


def cache_folder(environment: Mapping[str, str] = os.environ, system: str | None = None) -> Path:
    """$TERSELY_CACHE, else the place for caches of the operating system.

    >>> cache_folder({"XDG_CACHE_HOME": "/scratch"}, "Linux").as_posix()
    '/scratch/tersely'
    """
    if environment.get("TERSELY_CACHE"):
        return Path(environment["TERSELY_CACHE"])
    system = system or platform.system()
    if system == "Windows":
        local = environment.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "tersely" / "Cache"
    if system == "Darwin":
        return Path.home() / "Library" / "Caches" / "tersely"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tersely"


def write_cached(place: Path, text: str) -> None:
    """Write a file of the cache, in one step to whoever reads it meanwhile."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False, encoding="utf-8") as stream:
        stream.write(text)
    Path(stream.name).replace(place)


@contextlib.contextmanager
def writing_cache(place: Path) -> Iterator[None]:
    """Say in one line that the cache cannot be written."""
    try:
        yield
    except OSError as error:
        hint = "Name a folder that can be written to in $TERSELY_CACHE."
        raise Failure(f"The cache cannot be written: {error.strerror}.", where=str(place), hint=hint) from None


def _rank(pair: Pair) -> float:
    facts = engines.ENGINES.get(pair.engine)
    ranks = facts.ranks.get(pair.graph.precision, {}) if facts else {}
    return ranks.get(pair.cpu_class, math.inf)


def _installed(opened: Artifact) -> list[Pair]:
    found = [pair for pair in pairs(opened) if pair.engine in engines.installed()]
    if not found:
        names = ", ".join(offered_engines(opened)) or "it names none"
        what = f"No engine for this artifact is installed here ({names})."
        raise UserError(what, where=str(opened.folder), hint="Install one with: pip install onnxruntime")
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


def _circumstances(folder: Path, threads: int) -> dict[str, Any]:
    """All that a measurement holds for; another CPU or a new release of an engine asks for a new one."""
    here = cpu()
    return {
        "artifact": sha256(folder / MANIFEST),
        "cpu": here.name,
        "cpu_class": here.cpu_class,
        "threads": threads,
        "versions": engine_versions(),
    }


def engine_versions() -> dict[str, str | None]:
    """The release of each engine that runs graphs; None: not installed."""
    return {name: _version(name) for name in engines.GRAPH_ENGINES}


def _key(circumstances: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(circumstances, sort_keys=True).encode()).hexdigest()


@functools.cache
def _version(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _read(place: Path) -> dict[str, Any]:
    """What the file holds; nothing where there is none or it is damaged."""
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
