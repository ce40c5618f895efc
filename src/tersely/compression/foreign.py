"""What lies at the place of a run's parts and was not written by a run: it is never touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ..artifact import MANIFEST, is_artifact
from ..atomic import foreign_files
from ..report import REPORTS, is_report

RESULT = "result.json"


def foreign(part: Path) -> str | None:
    """Name something at the place of a part that no run wrote; None if there is none."""
    if not part.exists():
        return None
    if part.name == RESULT:
        return None if _is_result(part) else RESULT
    if part.name in REPORTS:
        return None if is_report(part) else part.name
    if not part.is_dir():
        return part.name
    folders = [part] if part.name == "best" else sorted(part.iterdir())
    if part.name == "torch":
        return next((f"{folder.name}/{name}" for folder in folders for name in foreign_files(folder)), None)
    return next((name for folder in folders for name in _foreign_files(folder)), None)


def _is_result(file: Path) -> bool:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"tersely_version", "best", "candidates"} <= content.keys()


def _foreign_files(folder: Path) -> Iterator[str]:
    """Names of what an artifact's manifest does not list; a folder that is no artifact is foreign as a whole."""
    if not is_artifact(folder):
        yield folder.name
        return
    try:
        own = {MANIFEST, *json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]}
    except (ValueError, KeyError, TypeError):
        own = set()  # a damaged list vouches for nothing
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in own and (path.is_symlink() or not path.is_dir()):
            yield f"{folder.name}/{name}"
