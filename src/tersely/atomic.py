"""Files and folders that appear whole or not at all, and never over files that Tersely did not write.

All is written under a hidden name beside its place and renamed at the end. A scratch folder is locked for as long as
its process lives: what a killed run left behind is kept apart from what a live run is writing, and removed by the next.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import Failure, UserError

if sys.platform != "win32":
    import fcntl

LISTS = ("tersely.json", "tersely_task.json")
"""Files in which a folder that Tersely wrote lists what belongs to it, under `files`."""
_MOVING, _ASIDE = "parts.json", "aside"
_ANOTHER = "Choose another --output_dir"


@contextmanager
def atomic_folder(destination: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a scratch folder that takes the destination's place when the block ends well, and vanishes when not.

    The scratch folder lies beside the destination (a rename does not cross file systems) under a name that
    starts with a dot, so that an interrupted run leaves nothing that looks like a result.
    """
    destination = Path(destination).resolve()
    check_destination(destination, overwrite=overwrite)
    with ExitStack() as opened:
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(_leftovers(destination), destination)
            scratch = opened.enter_context(scratch_folder(destination.parent, f".{destination.name}.", ".part"))
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


@contextmanager
def atomic_file(place: Path) -> Iterator[BinaryIO]:
    """Give a stream whose content is the file's when the block ends well, on the disk; else the file is as it was."""
    part = place.with_name(f".{place.name}.part")
    try:
        with part.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def check_destination(destination: str | Path, *, overwrite: bool) -> None:
    """Refuse, before any work, a place that must not or cannot be written."""
    destination = Path(destination).resolve()
    try:
        _put_back(destination)
        check_is_folder(destination)
        if destination.is_dir() and any(destination.iterdir()):
            _check_replaceable(destination, overwrite)
        check_writable(destination.parent)  # where the scratch folder goes, and from where the rename starts
    except OSError as error:  # a name that is too long, a folder that may not be listed
        raise UserError(f"The output folder cannot be written: {error.strerror}.", where=str(destination)) from None


def _check_replaceable(destination: Path, overwrite: bool) -> None:
    if not overwrite:
        hint = f"{_ANOTHER}, or replace it with --overwrite."
        raise UserError("The output folder exists and is not empty.", where=str(destination), hint=hint)
    if foreign := foreign_files(destination):
        what = f"The output folder holds files that Tersely did not write ({', '.join(foreign[:3])})."
        raise UserError(what, where=str(destination), hint=f"{_ANOTHER}, or move them away.")


def check_is_folder(place: Path) -> None:
    """Refuse a file in the place of an output folder."""
    if place.exists() and not place.is_dir():
        raise UserError("The output folder is a file.", where=str(place), hint=f"{_ANOTHER}.")


def check_writable(folder: Path) -> None:
    """Refuse a folder in which, or in the nearest above that exists, nothing can be written."""
    there = nearest_existing(folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UserError("The output folder cannot be written.", where=str(there), hint=f"{_ANOTHER}.")


def nearest_existing(folder: Path) -> Path:
    """The folder itself, or the nearest one above that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


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


@contextmanager
def scratch_folder(parent: Path, prefix: str, suffix: str = "") -> Iterator[Path]:
    """A new folder that is locked until the block ends, and then removed. Give it a prefix that starts with a dot."""
    folder = Path(tempfile.mkdtemp(suffix, prefix, parent))
    handle = lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def remove_leftovers(
    leftovers: Sequence[Path], place: Path, undo: Callable[[Path], object] = lambda folder: None
) -> None:
    """Remove scratch folders of killed runs, each after `undo`; where a run is still alive nothing is touched."""
    with ExitStack() as held:
        for folder in leftovers:
            handle = lock(folder)
            if handle is None:
                hint = f"Wait for it, or {_ANOTHER[0].lower()}{_ANOTHER[1:]}."
                raise UserError("Another run is writing to the output folder.", where=str(place), hint=hint)
            held.callback(os.close, handle)
        for folder in leftovers:
            undo(folder)
            shutil.rmtree(folder, ignore_errors=True)


def lock(path: Path) -> int | None:
    """Mark a file or folder as in use until the handle is closed or the process ends; None: another one does so."""
    if sys.platform == "win32":
        return os.open(os.devnull, os.O_RDONLY)  # folders cannot be locked there; two runs at once are not noticed
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        pass  # a file system without locks
    return handle


def move_parts(scratch: Path, place: Path, parts: Sequence[str], replaced: Sequence[str]) -> None:
    """Move parts from a scratch folder into place, in order; what has one of the names `replaced` steps aside first.

    The last part says that all are there: until it has moved, `move_back` undoes what was done.
    """
    (scratch / _ASIDE).mkdir()
    with atomic_file(scratch / _MOVING) as stream:
        stream.write(json.dumps(list(parts)).encode())
    sync(scratch)
    for name in reversed(replaced):  # the last part without the others is worse than the others without it
        if (place / name).exists():
            (place / name).rename(scratch / _ASIDE / name)
    for name in parts:
        (scratch / name).rename(place / name)


def move_back(scratch: Path, place: Path, replaced: Sequence[str]) -> None:
    """Undo half a `move_parts`: parts of a run that did not end go, those of the run before return."""
    if not (scratch / _MOVING).exists():
        return  # nothing has moved yet
    *others, last = json.loads((scratch / _MOVING).read_text(encoding="utf-8"))
    if not (scratch / last).exists():
        return  # everything has
    for name in others:
        if not (scratch / name).exists() and (place / name).exists():
            (place / name).rename(scratch / name)
    for name in replaced:
        if (scratch / _ASIDE / name).exists() and not (place / name).exists():
            (scratch / _ASIDE / name).rename(place / name)
    (scratch / last).unlink()  # who is killed while removing the rest must not undo once more


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


def _leftovers(destination: Path) -> list[Path]:
    """Scratch folders of a run that was killed, and of no other destination (`out` and `out.b` are two)."""
    ours = re.compile(re.escape(f".{destination.name}.") + r"[a-z0-9_]+(\.old)?\.part")
    beside = destination.parent.iterdir() if destination.parent.is_dir() else ()
    return sorted(left for left in beside if ours.fullmatch(left.name) and left.is_dir())


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
