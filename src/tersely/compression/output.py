"""The folder of a compress run: its parts appear when all of them are there; other files in it are never touched."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ..atomic import sync
from ..errors import Failure, UserError
from ..report import REPORTS
from .foreign import RESULT, foreign

if sys.platform != "win32":
    import fcntl

PARTS = ("torch", "candidates", "best", *REPORTS, RESULT)
"""What a run may write, in the order of appearance: who finds the result finds the rest.

Reports are drawn from the result alone, and can be drawn again.
"""
WORK = ".tersely-training"
"""Where trainings keep their state: inside the output folder, until the result is there."""

_SCRATCH = ".tersely-compress-"
_MOVING = "parts.json"
_ANOTHER = "Choose another --output_dir"
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}


class OutputFolder:
    """A scratch folder inside the output folder, and the way from there into place.

    A run that was killed leaves its scratch folder, under a name that starts with a dot. The next one removes it, and
    undoes half a publication first: what stood there before comes back. What lies in `work` stays until a result is
    published: a training takes hours, and goes on from there.
    """

    def __init__(self, place: str | Path, *, overwrite: bool = False) -> None:
        """Refuse, before any work, a finished run, files of others in the way, and what cannot be written."""
        self.place = Path(place).resolve()
        self.work = self.place / WORK
        try:
            for left in sorted(self.place.glob(f"{_SCRATCH}*")):
                _remove_leftover(left, self.place)
            self._check(overwrite)
        except OSError as error:  # a name that is too long, a folder that may not be listed
            raise UserError(f"The output folder cannot be written: {error.strerror}.", where=str(place)) from None

    def _check(self, overwrite: bool) -> None:
        where = str(self.place)
        if self.place.exists() and not self.place.is_dir():
            raise UserError("The output folder is a file.", where=where, hint=f"{_ANOTHER}.")
        for part in PARTS:
            if stranger := foreign(self.place / part):
                what = f"'{part}' is or holds what this command did not write ({stranger})."
                raise UserError(what, where=where, hint=f"{_ANOTHER}, or move it away.")
        for part in reversed(PARTS):
            if (self.place / part).exists() and not overwrite:
                holds = "a finished run" if part == RESULT else f"'{part}' already"
                hint = f"{_ANOTHER}, or replace it with --overwrite."
                raise UserError(f"The output folder holds {holds}.", where=where, hint=hint)
        parent = self._there()
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise UserError("The output folder cannot be written.", where=str(parent), hint=f"{_ANOTHER}.")

    def _there(self) -> Path:
        """The output folder, or the nearest one above that exists."""
        return next(folder for folder in (self.place, *self.place.parents) if folder.exists())

    def expect_room(self, size: int) -> None:
        """Refuse a disk that has fewer bytes left than the run will need at least."""
        free = shutil.disk_usage(self._there()).free
        if free < size:
            raise UserError(
                f"The disk is too full: the run needs at least {size / 1e6:.0f} MB, {free / 1e6:.0f} MB are free.",
                where=str(self.place),
                hint=f"{_ANOTHER}, or make room.",
            )

    def __enter__(self) -> OutputFolder:
        try:
            self._above = self._there()
            self.place.mkdir(parents=True, exist_ok=True)
            self.scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=self.place))
            self._lock = _lock(self.scratch)
        except OSError as error:
            self._remove_made()
            what = f"The output folder cannot be written: {error.strerror}."
            raise UserError(what, where=str(self.place), hint=f"{_ANOTHER}.") from None
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            _undo(self.scratch, self.place)
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
        if error is None:
            return
        if self.work.exists() and not any(self.work.iterdir()):
            self.work.rmdir()
        self._remove_made()
        if (cause := _os_error(error)) is not None:
            refusal = UserError if cause.errno in _DISK else Failure
            file = Path(str(cause.filename or self.place))
            where = self.place if file.is_relative_to(self.scratch) else file  # the scratch folder is gone
            what = f"Writing failed: {cause.strerror or cause}."
            kept = "What was trained is kept: make room and run it again, and it goes on from there."
            left = kept if self.work.exists() else "Nothing was left behind."
            raise refusal(what, where=str(where), hint=left) from error

    def _remove_made(self) -> None:
        """Remove the folders that this run made, as far as they are empty."""
        for folder in (self.place, *self.place.parents):
            if folder == self._above or (folder.exists() and any(folder.iterdir())):
                return
            if folder.exists():
                folder.rmdir()

    def publish(self, content: dict[str, Any], reports: Mapping[str, str] | None = None) -> None:
        """Write reports, by name, and result, and move every part into place, the result last."""
        for name, text in (reports or {}).items():
            (self.scratch / name).write_text(text, encoding="utf-8", newline="\n")
        aside = self.scratch / "aside"
        aside.mkdir()
        parts = [part for part in PARTS if part not in ("torch", *REPORTS) or (self.scratch / part).exists()]
        (self.scratch / _MOVING).write_text(json.dumps(parts), encoding="utf-8")
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        (self.scratch / RESULT).write_text(text, encoding="utf-8")  # from here on `_undo` has something to do
        sync(self.scratch)
        for part in reversed(PARTS):  # a result without its folders is worse than folders without a result
            if (self.place / part).exists():
                (self.place / part).rename(aside / part)
        for part in parts:
            (self.scratch / part).rename(self.place / part)
        if self.work.exists():
            self.work.rename(self.scratch / "training")  # and goes with the rest


def _undo(scratch: Path, place: Path) -> None:
    """Take half a publication back: parts of a run that did not end go, those of the run before return.

    The result moves last. Is it still in the scratch folder, then all that is missing beside it is already in place.
    """
    if not (scratch / RESULT).exists():
        return  # nothing has moved yet, or everything has
    for part in json.loads((scratch / _MOVING).read_text(encoding="utf-8"))[:-1]:
        if not (scratch / part).exists() and (place / part).exists():
            (place / part).rename(scratch / part)
    for part in PARTS:
        if (scratch / "aside" / part).exists() and not (place / part).exists():
            (scratch / "aside" / part).rename(place / part)
    (scratch / RESULT).unlink()  # who is killed while removing the rest must not undo once more


def _remove_leftover(scratch: Path, place: Path) -> None:
    lock = _lock(scratch)
    if lock is None:
        hint = f"Wait for it, or {_ANOTHER[0].lower()}{_ANOTHER[1:]}."
        raise UserError("Another run is writing to the output folder.", where=str(place), hint=hint)
    try:
        _undo(scratch, place)
        shutil.rmtree(scratch, ignore_errors=True)
    finally:
        os.close(lock)


def _lock(folder: Path) -> int | None:
    """Mark a folder as in use for as long as this process lives; None: another process does so."""
    if sys.platform == "win32":
        return os.open(os.devnull, os.O_RDONLY)  # folders cannot be locked there; two runs at once are not noticed
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        pass  # a file system without locks
    return handle


def _os_error(error: BaseException) -> OSError | None:
    """What went wrong with the disk, also behind what zip files and exporters make of it."""
    if isinstance(error, UserError) and not isinstance(error, Failure):
        return None  # has said what is wrong
    if isinstance(error, OSError):
        return error
    seen: list[BaseException] = []
    behind: BaseException | None = error
    while behind is not None and behind not in seen:
        if isinstance(behind, OSError) and behind.errno in _DISK:
            return behind
        seen.append(behind)
        behind = behind.__cause__ or behind.__context__
    return None
