"""Several processes (torchrun) as one: the first does the work, the others join its trainings and end as it ends."""

from __future__ import annotations

import io
import itertools
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

from .errors import Failure
from .progress import SILENT, Progress

T = TypeVar("T")
CALL, END, ERROR = "call", "end", "error"
HEARD = "heard-"
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables by which torchrun, and launchers like it, say which of how many processes this is."""
FOR_EVER = timedelta(days=30)
"""The others wait while the first scores, however long that takes."""
PATIENCE = timedelta(seconds=30)
"""How long a process that failed waits for the error of the first, and the first for all to have its message."""
SMALL = 2**20
"""Bytes that go through the store at most; larger messages go from process to process."""


def together(work: Callable[[], T], own: Sequence[Any] = ()) -> T:
    """Run `work` on the first process alone; the others take part in what it calls with `on_all`.

    All return what it returns and raise what it raises. `own`: objects that each process has of its own, such as
    functions of the user's, in the same order everywhere: they are not sent. Alone, or inside of another call, it is
    just called.
    """
    if _count() == 1 or _TEAM.get() is not None:
        return work()
    with _group() as group:
        team = _Team(group, own)
        return team.lead(work) if int(os.environ["RANK"]) == 0 else team.follow()


def on_all(function: Callable[..., T], *inputs: Any, progress: Progress = SILENT, **named: Any) -> T:
    """Call a function on every process at once; only the first shows its progress, and has its result."""
    team = _TEAM.get()
    if team is not None:
        team.send((CALL, (function, inputs, named)))
    return function(*inputs, progress=progress, **named)


def _count() -> int:
    return int(os.environ["WORLD_SIZE"]) if all(os.environ.get(name) for name in ENVIRONMENT) else 1


@contextmanager
def _group() -> Iterator[Any]:
    """A group of all processes for what is sent; torch's own is begun where nobody has, and ended again."""
    import torch
    from torch import distributed

    begun = not distributed.is_initialized()
    if begun:
        distributed.init_process_group(None if torch.cuda.is_available() else "gloo")
    group = distributed.new_group(backend="gloo")
    try:
        yield group
    finally:
        distributed.destroy_process_group(None if begun else group)


class _Team:
    """Messages of the first process to all others, in order.

    They lie in the store of the rendezvous: a process that reports a failure must not have to wait for those that
    still wait for its share of a sum.
    """

    def __init__(self, group: Any, own: Sequence[Any]) -> None:
        from torch.distributed import PrefixStore, rendezvous

        store, _, _ = next(rendezvous("env://", timeout=FOR_EVER))
        self.group, self.own = group, own
        self.store, self.keys = PrefixStore(f"tersely-{next(_RUNS)}", store), map(str, itertools.count())

    def lead(self, work: Callable[[], T]) -> T:
        """Do the work, and send how it ended."""
        inside = _TEAM.set(self)
        try:
            done = work()
            self.send((END, done))
        except BaseException as error:
            self.send((ERROR, _sendable(error)))
            raise
        finally:
            _TEAM.reset(inside)
            with suppress(RuntimeError):  # the store may end with this process
                self.store.wait([f"{HEARD}{rank}" for rank in range(1, _count())], PATIENCE)
        return done

    def follow(self) -> Any:
        """Call what the first process sends, until it sends the end."""
        failed: Exception | None = None
        while True:
            kind, content = self._receive(failed)
            if kind != CALL:
                self.store.set(f"{HEARD}{os.environ['RANK']}", b"")
            if kind == ERROR:
                raise content
            if kind == END:
                return content
            if failed is not None:
                raise failed
            function, inputs, named = content
            try:
                function(*inputs, **named)
            except Exception as error:  # noqa: BLE001 - the first may have failed too, and has more to say
                failed = error

    def send(self, message: tuple[str, Any]) -> None:
        """Send a message to all others."""
        from torch.distributed import broadcast_object_list

        stream = io.BytesIO()
        _Sent(stream, self.own).dump(message)
        data = stream.getvalue()
        self.store.set(next(self.keys), data if len(data) <= SMALL else b"")
        if len(data) > SMALL:
            broadcast_object_list([data], src=0, group=self.group)

    def _receive(self, failed: Exception | None) -> Any:
        from torch.distributed import broadcast_object_list

        key = next(self.keys)
        try:
            self.store.wait([key], FOR_EVER if failed is None else PATIENCE)
        except RuntimeError:
            raise failed or Failure("The first process is gone.") from None
        data = self.store.get(key)
        if not data:
            parts: list[Any] = [None]
            broadcast_object_list(parts, src=0, group=self.group)
            (data,) = parts
        return _Received(io.BytesIO(data), self.own).load()


class _Sent(pickle.Pickler):
    """Leaves out the objects that every process has of its own."""

    def __init__(self, stream: Any, own: Sequence[Any]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._places = {id(value): place for place, value in enumerate(own) if value is not None}

    def persistent_id(self, value: Any) -> int | None:
        """The place of an object among those that each process has of its own."""
        return self._places.get(id(value))


class _Received(pickle.Unpickler):
    """Puts in the objects of this process."""

    def __init__(self, stream: Any, own: Sequence[Any]) -> None:
        super().__init__(stream)
        self._own = own

    def persistent_load(self, place: int) -> Any:
        """The object at that place here."""
        return self._own[place]


def _sendable(error: BaseException) -> BaseException:
    """The error, or a `Failure` with its text where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - whatever an exception of another's may raise
        return Failure(f"{type(error).__name__}: {error}")
    return error


_TEAM: ContextVar[_Team | None] = ContextVar("team", default=None)
_RUNS = itertools.count()
