"""`Artifact`: one folder with a model, its tokenizer and what must be known of it. Whole or absent."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from .errors import UserError, existing, fill

FORMAT_VERSION = 2
UNSEALED_VERSION = 1
"""The format before the manifest had a checksum of its own. It is still read, with a `FormatWarning`."""
MANIFEST = "tersely.json"
SEAL = "manifest_sha256"
"""Last entry of the manifest: the sha256 of all bytes before its line."""
_SEALED = re.compile(rb'(?P<body>.*\n)  "%s": "(?P<digest>[0-9a-f]{64})"\n\}\n' % SEAL.encode(), re.DOTALL)


_warned: set[Path] = set()


class FormatWarning(UserWarning):
    """The artifact has an older format, in which no checksum covers the manifest."""


@dataclass(frozen=True)
class Graph:
    """One graph file: the engines that may run it, its arithmetic, and the CPU classes on which it is right.

    No engines: a form for tools that Tersely does not run itself. `data`: other files that hold weights of it.
    """

    path: str
    engines: tuple[str, ...]
    precision: str
    cpu_classes: tuple[str, ...] = ("all",)
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """What the parent's card and config say of it: the ids of Hub models and data sets, licence, languages."""

    base_model: str | None = None
    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None
    language: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What `tersely.json` says."""

    task: Mapping[str, Any]
    model_type: str
    inputs: tuple[str, ...]
    input_dtype: str
    pad_token_id: int
    graphs: tuple[Graph, ...]
    strategy: str = "none"
    parents: tuple[str, ...] = ()
    score: Mapping[str, Any] | None = None
    provenance: Provenance = field(default_factory=Provenance)
    tersely_version: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class Artifact:
    """A checked folder."""

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        """Place of one of its files, which must be among those that the manifest vouches for."""
        if name not in self.manifest.files:
            raise UserError(f"The manifest does not list the file '{name}'.", where=str(self.folder / MANIFEST))
        return self.folder / name

    def loaded_bytes(self, graph: Graph) -> int:
        """What an engine reads from disk to run a graph: the file and those that hold its weights."""
        return sum(self.path(name).stat().st_size for name in (graph.path, *graph.data))


def is_artifact(folder: str | Path) -> bool:
    """Tell an artifact from a transformers folder."""
    return (Path(folder) / MANIFEST).is_file()


def seal(folder: Path, manifest: Manifest) -> None:
    """Write the manifest with the sha256 of every file in the folder: the last thing that a writer does."""
    files = {
        path.relative_to(folder).as_posix(): sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    content = {**asdict(manifest), "files": files, "format_version": FORMAT_VERSION}
    text = json.dumps(content, ensure_ascii=False, indent=2).removesuffix("\n}") + ",\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / MANIFEST).write_bytes(f'{text}  "{SEAL}": "{digest}"\n}}\n'.encode())  # no newline is translated


def read(folder: str | Path, *, verify: bool = True) -> Artifact:
    """Open an artifact; every file must be there, unchanged, inside the folder.

    `verify=False` leaves out the checksums of the files, never that of the manifest. Warns, once a folder, where the
    manifest has none.
    """
    folder = existing(folder, "folder")
    manifest = checked_manifest(folder, verify=verify)
    if manifest.format_version == UNSEALED_VERSION and folder.resolve() not in _warned:
        _warned.add(folder.resolve())
        what = (
            f"{folder}: The artifact has format version {UNSEALED_VERSION}: no checksum covers its {MANIFEST}, so that "
            "a change there may go unnoticed. Make the artifact anew."
        )
        warnings.warn(what, FormatWarning, stacklevel=2)
    return Artifact(folder, manifest)


def checked_manifest(folder: Path, *, verify: bool = True) -> Manifest:
    """Do all checks of `read`, without its warning: for a folder that is not in its place yet."""
    manifest = read_manifest(folder)
    for name in _names(manifest):
        if not (folder / name).is_file():
            raise _copy_again(folder, f"The file '{name}' is missing.")
        if name not in manifest.files:
            raise UserError(f"The graph '{name}' has no checksum in the manifest.", where=str(folder))
    for name, digest in manifest.files.items() if verify else ():
        try:
            found = sha256(folder / name)
        except OSError as error:
            raise UserError(f"The file cannot be read: {error.strerror}.", where=str(folder / name)) from None
        if found != digest:
            raise _copy_again(folder, f"The file '{name}' has changed since it was written.")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """What the artifact says of itself, every name in it a path inside the folder. The files are not looked at."""
    place = folder / MANIFEST
    if not place.is_file():
        what, hint = f"This is not a Tersely artifact: it has no {MANIFEST}.", "Make one with: tersely export"
        raise UserError(what, where=str(folder), hint=hint)
    manifest = fill(Manifest, _content(place), "The manifest", where=str(place))
    for name in _names(manifest):
        if not _inside(folder, name):
            raise UserError(f"The manifest names a path outside of the folder: {name!r}.", where=str(folder))
    return manifest


def sha256(path: Path) -> str:
    """Digest of a file, a megabyte of which is in memory at a time."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _content(place: Path) -> dict[str, Any]:
    """What an unchanged manifest of a known format holds; its version is looked at before anything else in it."""
    try:
        data = place.read_bytes()
        sealed = _SEALED.fullmatch(data)
        if sealed and hashlib.sha256(sealed["body"]).hexdigest().encode() != sealed["digest"]:
            raise _copy_again(place, "The manifest has changed since it was written.")
        content = json.loads(data.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"The manifest is damaged: {error}.", where=str(place), hint="Make it anew.") from None
    version = content.get("format_version") if isinstance(content, dict) else None
    if version not in (UNSEALED_VERSION, FORMAT_VERSION):
        what = f"The artifact has format version {version}; this tersely reads {UNSEALED_VERSION} and {FORMAT_VERSION}."
        hint = "Update tersely." if isinstance(version, int) else "Make it anew."
        raise UserError(what, where=str(place), hint=hint)
    if version == FORMAT_VERSION and not sealed:
        raise _copy_again(place, f"The manifest does not end with '{SEAL}', its checksum, as it was written.")
    if version == UNSEALED_VERSION and SEAL in content:
        raise _copy_again(place, f"The manifest has '{SEAL}', which format version {version} does not have.")
    return {name: value for name, value in content.items() if name != SEAL}


def _copy_again(place: Path, what: str) -> UserError:
    return UserError(what, where=str(place), hint="Copy the whole folder again.")


def _names(manifest: Manifest) -> tuple[str, ...]:
    return (*manifest.files, *(graph.path for graph in manifest.graphs))


def _inside(folder: Path, name: str) -> bool:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or "\\" in name:
        return False
    try:
        return (folder / name).resolve(strict=True).is_relative_to(folder.resolve())
    except FileNotFoundError:
        return True  # said as missing
    except (OSError, ValueError, RuntimeError):  # no name at all: too long, with a zero byte, a link to itself
        return False
