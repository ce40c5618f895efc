"""Parts that are done, in a hidden folder beside the output until it is whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from ..atomic import atomic_file, lock
from ..data import Part
from ..errors import Failure, UserError
from .write_parts import AnswerFormat, Columns

NAME = re.compile(r"(\d{9})-[0-9a-f]{32}")


class Unfinished:
    """The folder of an output that is being written. A part's name says what it is an answer to.

    A part of other rows, another model or other settings has another name, and is not taken up. `resumable`: whether
    the folder is left where it is when the work is interrupted.
    """

    def __init__(self, output: Path, mark: str, resumable: bool) -> None:
        self.output, self.mark, self.resumable = output, mark, resumable
        self.folder = output.with_name(f".{output.name}.parts")
        self.kept: list[Path] = []
        self._stack = contextlib.ExitStack()
        self._found: dict[int, Path] = {}

    def __enter__(self) -> Unfinished:
        try:
            self.folder.mkdir(exist_ok=True)
            with contextlib.ExitStack() as opened:
                handle = lock(self.folder)  # keeps a second run away; a run that was killed keeps nobody away
                if handle is None:
                    what = "Another run is writing this output (option '--output')."
                    raise UserError(what, where=str(self.output), hint="Wait for it, or choose another.")
                opened.callback(os.close, handle)
                self._look_around()
                self._stack = opened.pop_all()
        except OSError as error:
            what = f"The output cannot be written: {error.strerror} (option '--output')."
            raise UserError(what, where=str(self.output), hint="Name a file in a folder that can be written.") from None
        return self

    def has(self, part: Part) -> bool:
        """Whether the part is done; another that stands in its place is removed."""
        place = self._place(part)
        found = self._found.pop(part.index, None)
        if found == place:
            self.kept.append(place)
            return True
        if found is not None:
            found.unlink()
        return False

    def keep(self, part: Part, content: bytes) -> None:
        """Write a part, whole or not at all."""
        place = self._place(part)
        with self._written(place) as stream:
            stream.write(content)
        self.kept.append(place)

    def finish(self, format: AnswerFormat, columns: Columns) -> None:
        """Make one file of all parts, and put it in its place."""
        joined = self.folder / "joined"
        with self._written(joined) as stream:
            format.join(sorted(self.kept), stream, columns)
        joined.replace(self.output)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if not self.resumable or not (self.kept or self._found):
            shutil.rmtree(self.folder, ignore_errors=True)
        self._stack.close()

    def _look_around(self) -> None:
        """Find the parts of an earlier run; what else it left goes."""
        for path in list(self.folder.iterdir()):
            if self.resumable and NAME.fullmatch(path.name):
                self._found[int(path.name.split("-")[0])] = path
            else:
                path.unlink()

    def _place(self, part: Part) -> Path:
        digest = hashlib.sha256(f"{self.mark} {part.digest()}".encode()).hexdigest()[:32]
        return self.folder / f"{part.index:09d}-{digest}"

    @contextlib.contextmanager
    def _written(self, path: Path) -> Iterator[BinaryIO]:
        """A file that is there, on the disk, when the block has ended well."""
        try:
            with atomic_file(path) as stream:
                yield stream
        except OSError as error:
            hint = "Run it again: it goes on where it was." if self.resumable else None
            raise Failure(
                f"The answers cannot be written: {error.strerror}.", where=str(self.output), hint=hint
            ) from None
