"""Workers as processes of this machine, each with a runtime of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import warnings
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from .job import Answerer, Job
from .read_parts import Part
from .teamwork import Event, Refused, tried


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
    warnings.simplefilter("ignore")  # what there is to warn of, the first process has told already
    answer: Answerer | Refused = tried(job.open)
    with contextlib.suppress(EOFError, OSError):
        if isinstance(answer, Refused):
            connection.send(answer)
            return
        connection.send(None)
        while True:
            examples = connection.recv()
            connection.send(tried(lambda examples=examples: answer(examples)))  # type: ignore[misc]
