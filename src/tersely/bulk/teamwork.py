"""Parts over several workers: who is free gets the next one; what a dead one had is done again by another.

Workers are processes of this machine here, and actors of Ray in `ray_workers`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from ..data import Part
from ..errors import Failure, UserError
from .run import Answerer, Job

TRIES = 3
"""How often a part is given out, and how often workers without one may end, before that is the user's to know."""
MEMORY = "Was it out of memory? Try fewer --workers or a smaller --batch_size."


def result_of(work: Callable[[], Any]) -> Any:
    """What the work gives, or the error that it ended with, in a form that can be sent to another process."""
    try:
        return work()
    except UserError as error:  # of a plain type: not every other can be sent
        return (Failure if isinstance(error, Failure) else UserError)(error.what, where=error.where, hint=error.hint)
    except Exception as error:  # noqa: BLE001 - raised again in the first process
        return RuntimeError(f"A worker failed with {type(error).__name__}: {error}\n{traceback.format_exc()}")


@dataclass(frozen=True)
class Event:
    """A worker is ready (`content` None), has answered (bytes), has failed (an error), or has ended (`ended`)."""

    worker: Any
    content: bytes | Exception | None = None
    ended: str | None = None


class Team(Protocol):
    """Workers somewhere: processes here, actors of Ray anywhere."""

    def start(self) -> None:
        """Begin a worker; it will say that it is ready."""

    def give(self, worker: Any, part: Part) -> None:
        """Hand a free worker a part; of one that has ended, `events` will tell."""

    def events(self) -> list[Event]:
        """Wait until something happens."""

    def close(self) -> None:
        """End all workers."""


def answered(team: Team, count: int, parts: Iterable[Part]) -> Iterator[tuple[Part, bytes]]:
    """Give each part with its bytes, in the order in which they are done."""
    try:
        yield from _Round(team, parts).answered(count)
    finally:
        team.close()


class _Round:
    """Who has what. One part is read ahead, so that nobody waits for the file."""

    def __init__(self, team: Team, parts: Iterable[Part]) -> None:
        self.team, self.source = team, iter(parts)
        self.again: deque[Part] = deque()
        self.idle: deque[Any] = deque()
        self.busy: dict[Any, Part] = {}
        self.tries: dict[int, int] = {}
        self.alive = self.ended_idle = 0

    def answered(self, count: int) -> Iterator[tuple[Part, bytes]]:
        ahead = self._following()
        while self.alive < count and ahead is not None:
            self._start()
        while ahead is not None or self.busy:
            for event in self.team.events():
                part = self.busy.pop(event.worker, None)
                if isinstance(event.content, Exception):
                    raise event.content
                if event.ended is not None:
                    self._replace(event, part)
                else:
                    self.idle.append(event.worker)
                while self.idle and (ahead := ahead or self._following()) is not None:
                    # Before the answers are written: workers are not to wait for the disk.
                    worker = self.idle.popleft()
                    self.busy[worker] = ahead
                    self.team.give(worker, ahead)
                    ahead = None
                if part is not None and event.content is not None:
                    yield part, event.content
                ahead = ahead or self._following()

    def _following(self) -> Part | None:
        return self.again.popleft() if self.again else next(self.source, None)

    def _start(self) -> None:
        self.team.start()
        self.alive += 1

    def _replace(self, event: Event, part: Part | None) -> None:
        """Another in the place of one that ended, unless they end by themselves again and again."""
        self.alive -= 1
        if event.worker in self.idle:
            self.idle.remove(event.worker)
        if part is None:
            self.ended_idle += 1
        else:
            self.again.append(part)
            self.tries[part.index] = self.tries.get(part.index, 0) + 1
            if self.tries[part.index] == TRIES:
                what = f"Workers ended {TRIES} times over these rows ({event.ended})."
                raise Failure(what, where=part.where, hint=MEMORY)
        if part is not None or self.ended_idle < TRIES:
            self._start()
        elif not self.alive:
            raise Failure(f"The workers ended while they opened the model ({event.ended}).", hint=MEMORY)


class Processes:
    """A `Team` of processes; each has a pipe, and one part at a time."""

    def __init__(self, job: Job) -> None:
        self.job = job
        # Not forked: threads of an engine or of a tokenizer do not survive a fork.
        self.context = multiprocessing.get_context("spawn")
        self.workers: dict[Connection, BaseProcess] = {}

    def start(self) -> None:
        """Begin a process."""
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_work, args=(self.job, theirs), daemon=True, name="tersely worker")
        process.start()
        theirs.close()  # the process alone has it now: when it ends, so does what can be read from ours
        self.workers[ours] = process

    def give(self, worker: Connection, part: Part) -> None:
        """Send the rows."""
        with contextlib.suppress(OSError):  # it has ended: `events` will say so
            worker.send(part.examples)

    def events(self) -> list[Event]:
        """Wait for messages and for ends."""
        return [self._event(connection) for connection in wait(list(self.workers)) if connection in self.workers]

    def close(self) -> None:
        """End the processes, whatever they are doing: nothing of theirs is on the disk."""
        for connection, process in self.workers.items():
            connection.close()
            process.kill()
        for process in self.workers.values():
            process.join()
        self.workers.clear()

    def _event(self, worker: Connection) -> Event:
        try:
            return Event(worker, worker.recv())
        except (EOFError, OSError):
            process = self.workers.pop(worker)
            process.join()
            worker.close()
            return Event(worker, ended=f"exit code {process.exitcode}")


def _work(job: Job, connection: Connection) -> None:
    """Answer parts until the other end of the pipe is closed, or gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the first one decides
    warnings.simplefilter("ignore")  # the first process has shown the warnings already
    answer: Answerer | Exception = result_of(job.open)
    with contextlib.suppress(EOFError, OSError):
        connection.send(answer if isinstance(answer, Exception) else None)
        while not isinstance(answer, Exception):
            connection.send(result_of(partial(answer, connection.recv())))
