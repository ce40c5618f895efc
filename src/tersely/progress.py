"""`Progress`: how long work tells what it is doing. Library code is silent unless it is handed one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Advance(Protocol):
    """Count some units done, with a note such as the loss."""

    def __call__(self, count: int = 1, note: str = "") -> None:
        """Count."""


class Progress(Protocol):
    """A place to show progress on."""

    def track(self, title: str, total: int) -> AbstractContextManager[Advance]:
        """Show one stretch of work of `total` units."""

    def say(self, line: str) -> None:
        """Tell one thing that happened."""


class Silent:
    """Shows nothing."""

    @contextmanager
    def track(self, title: str, total: int) -> Iterator[Advance]:
        """Count for nobody."""

        def advance(count: int = 1, note: str = "") -> None:
            """Do nothing."""

        yield advance

    def say(self, line: str) -> None:
        """Do nothing."""


SILENT: Progress = Silent()
