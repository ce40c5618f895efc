"""What `tersely tune` found, kept in the user's cache: never in the artifact, which other machines run too."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..artifact import MANIFEST, sha256
from ..data.typed_json import fill
from ..engines import GRAPH_ENGINES
from ..engines.cpu import Cpu, cpu
from ..errors import Failure, UserError

FILE = "tune.json"


@dataclass(frozen=True)
class Remembered:
    """The graph, the engine and the arithmetic that were the fastest here."""

    graph: str
    engine: str
    precision: str


def recall(folder: Path, threads: int) -> Remembered | None:
    """What was found for this artifact with so many threads on this machine, its engines as they are now."""
    entry = _read(cache_folder() / FILE).get(_key(_circumstances(folder, threads, cpu())), {})
    try:
        return fill(Remembered, entry.get("choice"), "The choice")
    except (AttributeError, UserError):  # damaged by hand: as good as nothing
        return None


def remember(folder: Path, choices: Mapping[int, Remembered]) -> Path:
    """Write what was found, by number of threads; gives the file. Of two who write at once, the last one's holds."""
    place = prepare()
    content = _read(place)
    for threads, choice in choices.items():
        circumstances = _circumstances(folder, threads, cpu())
        content[_key(circumstances)] = {"choice": asdict(choice), "for": circumstances}
    text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    try:
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False, encoding="utf-8") as stream:
            stream.write(text)
        Path(stream.name).replace(place)
    except OSError as error:
        raise unwritable(error, place) from None
    return place


def prepare() -> Path:
    """The file to write to, its folder made: asked before a long measurement."""
    place = cache_folder() / FILE
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except OSError as error:
        raise unwritable(error, place) from None
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


def _circumstances(folder: Path, threads: int, here: Cpu) -> dict[str, Any]:
    """All that a measurement holds for; another CPU or a new release of an engine asks for a new one."""
    return {
        "artifact": sha256(folder / MANIFEST),
        "cpu": here.name,
        "cpu_class": here.cpu_class,
        "threads": threads,
        "versions": {name: _version(name) for name in GRAPH_ENGINES},
    }


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


def unwritable(error: OSError, place: Path) -> Failure:
    """What is raised where the cache cannot be written."""
    hint = "Name a folder that can be written to in $TERSELY_CACHE."
    return Failure(f"The cache cannot be written: {error.strerror}.", where=str(place), hint=hint)
