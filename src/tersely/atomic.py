"""Folders that appear whole or not at all, and never over files that Tersely did not write."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import Failure, UserError

LISTS = ("tersely.json", "tersely_task.json")
"""Files in which a folder that Tersely wrote lists what belongs to it, under `files`."""


@contextmanager
def whole_folder(destination: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a scratch folder that takes the destination's place when the block ends well, and vanishes when not.

    The scratch folder lies beside the destination (a rename does not cross file systems) under a name that
    starts with a dot, so that an interrupted run leaves nothing that looks like a result.
    """
    destination = Path(destination).resolve()
    check_destination(destination, overwrite=overwrite)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        for left in _leftovers(destination):
            shutil.rmtree(left, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".part", dir=destination.parent))
    except OSError as error:
        raise UserError(f"The folder cannot be written: {error.strerror}.", where=str(destination.parent)) from None
    try:
        yield scratch
        scratch.chmod(0o755)
        sync(scratch)
        _replace(scratch, destination)
    except OSError as error:
        hint = "Nothing was left behind."
        raise Failure(f"Writing failed: {error.strerror or error}.", where=str(destination), hint=hint) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check_destination(destination: str | Path, *, overwrite: bool) -> None:
    """Refuse, before any work, a place that must not or cannot be written."""
    destination = Path(destination).resolve()
    try:
        _put_back(destination)
        _check(destination, overwrite)
    except OSError as error:  # a name that is too long, a folder that may not be listed
        raise UserError(f"The output folder cannot be written: {error.strerror}.", where=str(destination)) from None


def _check(destination: Path, overwrite: bool) -> None:
    if destination.exists() and not destination.is_dir():
        raise UserError("The output folder is a file.", where=str(destination), hint="Choose another --output_dir.")
    if destination.is_dir() and any(destination.iterdir()):
        if not overwrite:
            hint = "Choose another --output_dir, or replace it with --overwrite."
            raise UserError("The output folder exists and is not empty.", where=str(destination), hint=hint)
        if foreign := foreign_files(destination):
            raise UserError(
                f"The output folder holds files that Tersely did not write ({', '.join(foreign[:3])}).",
                where=str(destination),
                hint="Choose another --output_dir, or move them away.",
            )
    parent = destination.parent  # where the scratch folder goes, and from where the rename starts
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UserError("The output folder cannot be written.", where=str(parent), hint="Choose another --output_dir.")


def foreign_files(folder: Path) -> list[str]:
    """What a folder holds that its own list (`LISTS`) does not name; a file in its place is foreign itself."""
    if not folder.is_dir():
        return [folder.name]
    own: set[str] = set()
    for name in LISTS:
        if (folder / name).is_file():
            try:
                own |= {name, *json.loads((folder / name).read_text(encoding="utf-8"))["files"]}
            except (ValueError, KeyError, TypeError):
                continue  # a damaged list vouches for nothing
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    present = (path.relative_to(folder).as_posix() for path in found)
    return sorted(set(present) - own)


def _leftovers(destination: Path) -> list[Path]:
    """Scratch folders of a run that was killed, and of no other destination (`out` and `out.b` are two)."""
    ours = re.compile(re.escape(f".{destination.name}.") + r"[a-z0-9_]+(\.old)?\.part")
    beside = destination.parent.iterdir() if destination.parent.is_dir() else ()
    return sorted(left for left in beside if ours.fullmatch(left.name) and left.is_dir())


def sync(folder: Path) -> None:
    """Have everything in a folder on the disk before it is renamed into place."""
    if os.name != "posix":
        return  # elsewhere a folder cannot be opened, and a file only for writing
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _put_back(destination: Path) -> None:
    """Undo half an overwrite: a run killed between its two renames left the old result aside, and nothing in place."""
    if not destination.exists():
        for left in _leftovers(destination):
            if left.name.endswith(".old.part"):
                left.rename(destination)
                return


def _replace(scratch: Path, destination: Path) -> None:
    """Rename into place; what stood there steps aside first, since a rename does not replace a full folder."""
    if destination.is_dir() and any(destination.iterdir()):
        aside = scratch.with_suffix(".old.part")
        destination.rename(aside)
        try:
            scratch.rename(destination)
        except OSError:
            aside.rename(destination)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    else:
        scratch.rename(destination)
