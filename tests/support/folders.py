"""What stands in a folder, to be compared with what stood there before."""

from __future__ import annotations

from pathlib import Path

from tersely.artifact import sha256


def names(folder: Path) -> list[str]:
    """What the folder itself holds, hidden entries too."""
    return sorted(path.name for path in folder.iterdir())


def tree(folder: Path) -> dict[str, str]:
    """Every file under a folder with its text."""
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files(folder)}


def digests(*folders: Path) -> dict[Path, str]:
    """Every file under these folders with its sha256."""
    return {path: sha256(path) for folder in folders for path in files(folder)}


def files(folder: Path) -> list[Path]:
    """Every file under a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
