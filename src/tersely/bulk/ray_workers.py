"""Workers as actors of Ray, on as many machines as its cluster has; the artifact is sent to them as bytes."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import __version__
from .. import artifact as artifacts
from ..atomic import atomic_folder
from ..data import Part
from ..errors import Failure, UserError, missing_package
from ..runtime.choose import cache_folder, writing_cache
from .run import Answerer, Job
from .teamwork import Event, result_of

LOCAL, AUTO = "local", "auto"
PATIENCE = 5.0
"""Seconds to wait for a cluster to answer."""

Files = Mapping[str, bytes]


def ray_actors(job: Job, address: str, workers: int | None) -> tuple[RayActors, int]:
    """Workers on a Ray cluster, and how many: as many as it has room for unless said."""
    team = RayActors(job, address)
    return team, workers or max(1, team.cores // job.threads)


class RayActors:
    """A `Team` of actors; each holds one runtime, and has one part at a time.

    The artifact goes to the cluster's object store once; machines share no disk with this one.
    """

    def __init__(self, job: Job, address: str) -> None:
        self.ray = connect(address)
        self.job = job
        self.pending: dict[Any, Any] = {}
        self.actors: set[Any] = set()
        self.files = {name: self.ray.put(content) for name, content in packed(job.folder).items()}
        self.kind = self.ray.remote(_Actor).options(num_cpus=job.threads, max_restarts=0)
        self._check_room()

    @property
    def cores(self) -> int:
        """Those of all machines."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def start(self) -> None:
        """Ask for an actor; it begins when the cluster has room for it."""
        actor = self.kind.remote(self.job, __version__)
        self.actors.add(actor)
        self.pending[actor.open.remote(self.files)] = actor

    def give(self, worker: Any, part: Part) -> None:
        """Send the rows."""
        self.pending[worker.answer.remote(part.examples)] = worker

    def events(self) -> list[Event]:
        """Wait for the first answer."""
        done, _ = self.ray.wait(list(self.pending), num_returns=1)
        return [self._event(answer) for answer in done]

    def close(self) -> None:
        """End the actors and leave the cluster; one that was begun for this run ends too."""
        if self.ray.is_initialized():
            for actor in self.actors:
                self.ray.kill(actor)
            self.ray.shutdown()

    def _event(self, answer: Any) -> Event:
        worker = self.pending.pop(answer)
        gone = self.ray.exceptions
        try:
            return Event(worker, self.ray.get(answer))
        except gone.RayTaskError as error:  # not one of ours, which come as values: tersely is missing there, say
            reason = str(error.cause).strip().splitlines()[-1]
            hint = f"Every machine of the cluster needs tersely {__version__} with its extra 'ray'."
            raise UserError(f"A worker could not begin: {reason}.", hint=hint) from None
        except (gone.RayActorError, gone.WorkerCrashedError, gone.ObjectLostError, gone.OutOfMemoryError) as error:
            self.actors.discard(worker)
            last = str(error).strip().splitlines()[-1].strip()  # what an actor that could not be made died of
            return Event(worker, ended=f"{type(error).__name__}: {last[:160]}")

    def _check_room(self) -> None:
        largest = max((node["Resources"].get("CPU", 0) for node in self.ray.nodes() if node["Alive"]), default=0)
        if largest < self.job.threads:
            self.close()
            what = f"No machine of the cluster has {self.job.threads} cores; the largest has {largest:g}"
            raise UserError(f"{what} (option '--threads').", hint="Give a smaller number.")


def connect(address: str) -> Any:
    """Join a cluster, or begin one on this machine for `local`; gives the package."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else every start tells of a change to come
    try:
        import ray
    except ImportError as error:
        raise missing_package("ray", "--ray", extra="ray") from error
    if address not in (LOCAL, AUTO):
        _knock(address)
    silent: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == LOCAL:
        silent["include_dashboard"] = False
    try:
        ray.init(address=address, **silent)
    except Exception as error:  # Ray raises plain ones too
        reason = str(error).strip().splitlines()[0].rstrip(".")
        if address == LOCAL:
            raise Failure(f"Ray did not begin on this machine: {reason}.") from error
        raise _nobody(address, reason) from error
    return ray


def _knock(address: str) -> None:
    """See whether anybody listens there: Ray itself would try for ten minutes and more."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise _nobody(address, "that is no address")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _nobody(address, getattr(error, "strerror", None) or str(error)) from None


def _nobody(address: str, why: str) -> UserError:
    hint = "Give HOST:PORT of the head, as 'ray start --head' tells it, or auto, or local."
    return UserError(f"No Ray cluster is found: {why} (option '--ray').", where=address, hint=hint)


class _Actor:
    """One runtime on some machine."""

    answerer: Answerer

    def __init__(self, job: Job, version: str) -> None:
        self.job, self.version = job, version

    def open(self, files: dict[str, Any]) -> Any:
        """Unpack the artifact and load it; gives an error or None."""
        return result_of(lambda: self._open(files))

    def answer(self, examples: list[Any]) -> Any:
        """Give the bytes of a part, or an error."""
        return result_of(lambda: self.answerer(examples))

    def _open(self, files: dict[str, Any]) -> None:
        import ray

        if __version__ != self.version:
            what = f"A machine of the cluster has tersely {__version__}, this one {self.version}."
            raise UserError(what, hint="Install the same version everywhere.")
        content = dict(zip(files, ray.get(list(files.values())), strict=True))
        self.answerer = replace(self.job, folder=unpacked(content)).open()


def packed(folder: Path) -> Files:
    """The files that the manifest vouches for, and itself; nothing else that lies in the folder."""
    opened = artifacts.read(folder)
    names = [artifacts.MANIFEST, *opened.manifest.files]
    return {name: (folder / name).read_bytes() for name in names}


def unpacked(files: Files, cache: Path | None = None) -> Path:
    """The artifact's folder in the cache: the one that is there if its sums are right, else a new one."""
    from filelock import FileLock  # Ray brings it

    home = (cache or cache_folder()) / "artifacts"
    place = home / hashlib.sha256(files[artifacts.MANIFEST]).hexdigest()
    with writing_cache(place):
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{home}.lock"):  # workers of one machine that begin together unpack once
            with contextlib.suppress(UserError):
                artifacts.checked_manifest(place)
                return place
            shutil.rmtree(place, ignore_errors=True)
            with atomic_folder(place) as folder:
                for name, content in files.items():
                    file = folder / name
                    if not file.resolve().is_relative_to(folder.resolve()):
                        raise UserError(f"The manifest names a path outside of the folder: {name!r}.")
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)
                artifacts.checked_manifest(folder)
    return place
