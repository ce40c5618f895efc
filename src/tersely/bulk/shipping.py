"""An artifact on its way to other machines: its files as bytes, unpacked into a cache there, checked by their sums."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from .. import artifact as artifacts
from ..errors import Failure, UserError
from ..runtime.remember import cache_folder

Files = Mapping[str, bytes]
SCRATCH = ".part-"


def packed(folder: Path) -> Files:
    """The files that the manifest vouches for, and itself; nothing else that lies in the folder."""
    opened = artifacts.read(folder)
    names = [artifacts.MANIFEST, *opened.manifest.files]
    return {name: (folder / name).read_bytes() for name in names}


def unpacked(files: Files, cache: Path | None = None) -> Path:
    """The artifact's folder in the cache: the one that is there if its sums are right, else a new one.

    Workers of one machine may come at the same time: each writes a folder of its own, and the first to rename wins.
    """
    place = (cache or cache_folder()) / "artifacts" / hashlib.sha256(files[artifacts.MANIFEST]).hexdigest()
    if _sound(place):
        return place
    try:
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        _clear(place.parent)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=SCRATCH) as scratch:
            folder = Path(scratch) / "artifact"
            for name, content in files.items():
                file = folder / name
                if not file.resolve().is_relative_to(folder.resolve()):
                    raise UserError(f"The manifest names a path outside of the folder: {name!r}.")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            artifacts.checked_manifest(folder)
            if not _sound(place):
                folder.rename(place)
    except OSError as error:
        if _sound(place):  # another worker was faster
            return place
        hint = "Name a folder that can be written to in $TERSELY_CACHE."
        raise Failure(f"The artifact cannot be unpacked: {error.strerror}.", where=str(place), hint=hint) from None
    return place


def _clear(folder: Path) -> None:
    """Remove what workers that were killed while they unpacked have left; nobody takes an hour for it."""
    for left in folder.glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > 3600:
                shutil.rmtree(left, ignore_errors=True)


def _sound(place: Path) -> bool:
    try:
        artifacts.checked_manifest(place)
    except UserError:
        return False
    return True
