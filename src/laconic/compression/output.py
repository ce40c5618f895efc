"""The folder of a compress run: its parts appear when all of them are there; other files in it are never touched."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from ..artifact import is_artifact
from ..errors import Failure, UserError

RESULT = "result.json"
PARTS = ("candidates", "best", RESULT)
"""What a run writes, in the order of appearance: who finds the result finds the rest."""

_SCRATCH = ".laconic-compress-"


class Output:
    """A scratch folder inside the output folder, and the way from there into place."""

    def __init__(self, place: str | Path, *, overwrite: bool = False) -> None:
        self.place = Path(place).resolve()
        self._check(overwrite)

    def _check(self, overwrite: bool) -> None:
        """Refuse, before any work, a finished run, files of others in the way, and what cannot be written."""
        where = str(self.place)
        if self.place.exists() and not self.place.is_dir():
            raise UserError("The output folder is a file.", where=where, hint="Choose another --output_dir.")
        if (self.place / RESULT).exists() and not overwrite:
            hint = "Choose another --output_dir, or replace it with --overwrite_output_dir."
            raise UserError("The output folder holds a finished run.", where=where, hint=hint)
        for part in ("candidates", "best"):
            if foreign := _foreign(self.place / part):
                raise UserError(
                    f"'{part}' holds what Laconic did not write ({foreign}).",
                    where=where,
                    hint="Choose another --output_dir, or move it away.",
                )
        parent = self.place
        while not parent.exists():
            parent = parent.parent
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            hint = "Choose another --output_dir."
            raise UserError("The output folder cannot be written.", where=str(parent), hint=hint)

    def __enter__(self) -> Output:
        try:
            self._made = not self.place.exists()
            self.place.mkdir(parents=True, exist_ok=True)
            for left in self.place.glob(f"{_SCRATCH}*"):
                shutil.rmtree(left, ignore_errors=True)
            self.scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=self.place))
        except OSError as error:
            what = f"The output folder cannot be written: {error.strerror}."
            raise UserError(what, where=str(self.place)) from None
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
        if error is not None and self._made and not any(self.place.iterdir()):
            self.place.rmdir()
        if isinstance(error, OSError):
            what = f"Writing failed: {error.strerror or error}."
            raise Failure(what, where=str(self.place), hint="Nothing was left behind.") from error

    def publish(self, content: dict[str, Any]) -> None:
        """Write the result and move every part into place, the result last."""
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        (self.scratch / RESULT).write_text(text, encoding="utf-8")
        aside = self.scratch / "aside"
        aside.mkdir()
        for part in reversed(PARTS):  # a result without its folders is worse than folders without a result
            if (self.place / part).exists():
                (self.place / part).rename(aside / part)
        for part in PARTS:
            (self.scratch / part).rename(self.place / part)


def _foreign(folder: Path) -> str | None:
    """A name in a folder that is neither an artifact nor one of several, or None."""
    if not folder.exists() or is_artifact(folder):
        return None
    if not folder.is_dir():
        return folder.name
    return next((path.name for path in sorted(folder.iterdir()) if not is_artifact(path)), None)
