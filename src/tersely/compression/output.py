"""The folder of a compress run: its parts appear when all of them are there; other files in it are never touched."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import atomic
from ..artifact import is_artifact
from ..errors import Failure, UserError
from ..report import REPORTS, is_report

RESULT = "result.json"
PARTS = ("torch", "candidates", "best", *REPORTS, RESULT)
"""What a run may write, in the order of appearance: who finds the result finds the rest.

Reports are drawn from the result alone, and can be drawn again.
"""
WORK = ".tersely-training"
"""Where trainings keep their state: inside the output folder, until the result is there."""

_SCRATCH = ".tersely-compress-"
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
        self._opened = ExitStack()
        try:
            atomic.remove_leftovers(sorted(self.place.glob(f"{_SCRATCH}*")), self.place, self._undo)
            self._check(overwrite)
        except OSError as error:  # a name that is too long, a folder that may not be listed
            raise UserError(f"The output folder cannot be written: {error.strerror}.", where=str(place)) from None

    def _check(self, overwrite: bool) -> None:
        where = str(self.place)
        atomic.check_is_folder(self.place)
        for part in PARTS:
            if stranger := _foreign(self.place / part):
                what = f"'{part}' is or holds what this command did not write ({stranger})."
                raise UserError(what, where=where, hint=f"{_ANOTHER}, or move it away.")
        for part in reversed(PARTS):
            if (self.place / part).exists() and not overwrite:
                holds = "a finished run" if part == RESULT else f"'{part}' already"
                hint = f"{_ANOTHER}, or replace it with --overwrite."
                raise UserError(f"The output folder holds {holds}.", where=where, hint=hint)
        atomic.check_writable(self.place)

    def expect_room(self, size: int) -> None:
        """Refuse a disk that has fewer bytes left than the run will need at least."""
        free = shutil.disk_usage(atomic.nearest_existing(self.place)).free
        if free < size:
            raise UserError(
                f"The disk is too full: the run needs at least {size / 1e6:.0f} MB, {free / 1e6:.0f} MB are free.",
                where=str(self.place),
                hint=f"{_ANOTHER}, or make room.",
            )

    def __enter__(self) -> OutputFolder:
        try:
            self._above = atomic.nearest_existing(self.place)
            self.place.mkdir(parents=True, exist_ok=True)
            self.scratch = self._opened.enter_context(atomic.scratch_folder(self.place, _SCRATCH))
        except OSError as error:
            self._remove_made()
            what = f"The output folder cannot be written: {error.strerror}."
            raise UserError(what, where=str(self.place), hint=f"{_ANOTHER}.") from None
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._undo(self.scratch)
        self._opened.close()
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

    def publish(self, content: dict[str, Any], reports: Mapping[str, str]) -> None:
        """Write reports, by name, and result, and move every part into place, the result last."""
        for name, text in reports.items():
            (self.scratch / name).write_text(text, encoding="utf-8", newline="\n")
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        (self.scratch / RESULT).write_text(text, encoding="utf-8")
        parts = [part for part in PARTS if part not in ("torch", *REPORTS) or (self.scratch / part).exists()]
        atomic.move_parts(self.scratch, self.place, parts, PARTS)
        if self.work.exists():
            self.work.rename(self.scratch / "training")  # and goes with the rest

    def _undo(self, scratch: Path) -> None:
        atomic.move_back(scratch, self.place, PARTS)

    def _remove_made(self) -> None:
        """Remove the folders that this run made, as far as they are empty."""
        for folder in (self.place, *self.place.parents):
            if folder == self._above or (folder.exists() and any(folder.iterdir())):
                return
            if folder.exists():
                folder.rmdir()


def _foreign(part: Path) -> str | None:
    """Name something at the place of a part that no run wrote: it is never touched. None if there is none."""
    if not part.exists():
        return None
    if part.name == RESULT:
        return None if _is_result(part) else RESULT
    if part.name in REPORTS:
        return None if is_report(part) else part.name
    if not part.is_dir():
        return part.name
    for folder in [part] if part.name == "best" else sorted(part.iterdir()):
        if part.name != "torch" and not is_artifact(folder):
            return folder.name
        for name in atomic.foreign_files(folder):
            return f"{folder.name}/{name}"
    return None


def _is_result(file: Path) -> bool:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"tersely_version", "best", "candidates"} <= content.keys()


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
