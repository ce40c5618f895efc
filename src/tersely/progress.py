"""`Progress`: how long work shows what it is doing, as a bar on a terminal, as lines elsewhere, or not at all."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


class Advance(Protocol):
    """Count some units done, with a note such as the loss."""

    def __call__(self, count: int = 1, note: str = "") -> None:
        """Count."""


@runtime_checkable
class Estimated(Advance, Protocol):
    """An `Advance` that is also given the time left, by work whose units do not take equally long."""

    def expect(self, seconds: float) -> None:
        """Show that so much time is left from now on."""


class Progress(Protocol):
    """Where progress is shown. Any object with these two methods will do.

    Example:
        >>> from contextlib import contextmanager
        >>> class Printed:
        ...     @contextmanager
        ...     def track(self, title, total):
        ...         yield lambda count=1, note="": print(f"{title}: {count} of {total} {note}")
        ...
        ...     def say(self, line):
        ...         print(line)
        >>> with Printed().track("train", 10) as advance:
        ...     advance(2, "loss 0.5")
        train: 2 of 10 loss 0.5
    """

    def track(self, title: str, total: int) -> AbstractContextManager[Advance]:
        """Show one stretch of work.

        Args:
            title: What is done.
            total: How many units it takes.

        Returns:
            A context manager; it gives the function that counts units as they are done, which may be `Estimated`.
        """

    def say(self, line: str) -> None:
        """Tell one thing that happened.

        Args:
            line: The text, without a line break.
        """


def shown(progress: Progress | bool | None) -> Progress:
    """The progress that a public function's `progress=` asks for.

    None: a bar if standard error is a terminal, else nothing. True: lines where it is no terminal. False: nothing.
    """
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return SILENT
    if progress is None or progress is True:
        return Terminal() if sys.stderr.isatty() else Plain()
    return progress


class Terminal:
    """A bar that says what is done, what is left, and the last note."""

    @contextmanager
    def track(self, title: str, total: int) -> Iterator[Advance]:
        """Show a bar while the block runs."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.text import Text

        mover = _Mover(lambda count, note: bar.update(job, advance=count, note=note))

        class TimeLeft(TimeRemainingColumn):
            """What the work expects, where it says so."""

            def render(self, task: Any) -> Text:
                if (left := mover.left) is None:
                    return super().render(task)
                return Text(str(timedelta(seconds=round(left))), style="progress.remaining")

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeLeft(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        # Left to itself rich would take over standard output too, and `tersely predict … > FILE` write to the screen.
        with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
            job = bar.add_task(title, total=total, note="")
            yield mover

    def say(self, line: str) -> None:
        """Write a line."""
        sys.stderr.write(f"{line}\n")


class Plain:
    """A line now and then."""

    @contextmanager
    def track(self, title: str, total: int) -> Iterator[Advance]:
        """Write a line every few seconds, and one at the end of work that took longer than two."""
        started = last = time.monotonic()
        done = 0

        def show(count: int, note: str) -> None:
            nonlocal done, last
            done += count
            now = time.monotonic()
            expected = mover.left
            left = (now - started) / max(done, 1) * (total - done) if expected is None else expected
            if now - last >= EVERY and (done < total or left > 0):
                last = now
                self.say(f"{title}: {done}/{total}, about {left:.0f} s left{'  ' + note if note else ''}")

        mover = _Mover(show)
        yield mover
        took = time.monotonic() - started
        if took >= 2.0:
            self.say(f"{title}: done in {took:.0f} s")

    def say(self, line: str) -> None:
        """Write a line."""
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class _Mover:
    """Moves a bar or writes lines; takes the time left from work that knows more of it than units done and to do."""

    def __init__(self, show: Callable[[int, str], None]) -> None:
        self._show, self._ends = show, math.nan

    def __call__(self, count: int = 1, note: str = "") -> None:
        """Count units, with a note."""
        self._show(count, note)

    def expect(self, seconds: float) -> None:
        """So much is left from now on."""
        self._ends = time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds until the end that was last expected; None: nothing was."""
        return None if math.isnan(self._ends) else max(0.0, self._ends - time.monotonic())


class Silent:
    """Shows nothing."""

    @contextmanager
    def track(self, title: str, total: int) -> Iterator[Advance]:
        """Count for nobody."""
        yield lambda count=1, note="": None

    def say(self, line: str) -> None:
        """Do nothing."""


SILENT: Progress = Silent()
