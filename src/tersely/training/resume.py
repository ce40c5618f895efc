"""Runs that were killed: which one it was, and from where to go on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainingArguments

from .. import __version__, tasks
from ..artifact import sha256
from ..errors import UserError
from ..models import folder
from ..progress import Progress
from ..tasks import Task

RUN = "run.txt"
"""File in the work folder that says, by a hash, what its checkpoints are of."""


def work_folder(output: Path) -> Path:
    """Where a run keeps its checkpoints until its result is there: hidden, beside the output."""
    return output.absolute().parent / f".{output.absolute().name}.training"


def fingerprint(path: str | Path, task: Task, arguments: TrainingArguments, *examples: Sequence[Any]) -> str:
    """Everything that decides the result, so that another run's checkpoints are never taken up."""
    files = sorted(p for p in Path(path).iterdir() if p.is_file())
    rows = [digest(list(part)) for part in examples]
    passing = {"output_dir", "logging_dir", "local_rank"}
    settings = {name: repr(value) for name, value in sorted(arguments.to_dict().items()) if name not in passing}
    content = [[sha256(p) for p in files], tasks.to_json(task), settings, rows, __version__, torch.__version__]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def digest(value: Any) -> str:
    """sha256 of plain values, dataclasses and arrays to the last element (texts leave out the middle of long ones).

    >>> digest([1, "a"]) == digest([1, "a"]), digest(["ab"]) == digest(["a", "b"])
    (True, False)
    """
    found = hashlib.sha256()
    for part in _parts(value):
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield f"array {value.dtype} {value.shape}".encode()
        yield value.tobytes()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in sorted(value, key=repr):
            yield from (*_parts(key), *_parts(value[key]))
    elif isinstance(value, (list, tuple, np.ndarray)):
        yield f"list {len(value)}".encode()
        for one in value:
            yield from _parts(one)
    else:
        yield repr(value).encode()


def forget_finished(work: Path, output: Path) -> None:
    """Remove the checkpoints of a run that was killed after its result had appeared: they are of no more use."""
    try:
        notes = json.loads((output / folder.NOTES).read_text(encoding="utf-8"))
        if notes["run"] == (work / RUN).read_text(encoding="utf-8"):
            shutil.rmtree(work, ignore_errors=True)
    except (OSError, ValueError, KeyError, TypeError):
        return


def resume(work: Path, mark: str, progress: Progress) -> Path | None:
    """Find the checkpoint to go on from; one of another run is removed, and a new run begun."""
    place = work / RUN
    if place.is_file() and place.read_text(encoding="utf-8") == mark:
        found = last_checkpoint(work)
        if found is not None:
            progress.say(f"An earlier run was interrupted; going on from {found.name.replace('-', ' ')}.")
        return found
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
        place.write_text(mark, encoding="utf-8")
    except OSError as error:
        raise UserError(f"The folder cannot be written: {error.strerror}.", where=str(work.parent)) from None
    return None


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written whole: the trainer writes its state last."""
    found = []
    for path in folder.glob("checkpoint-*"):
        try:
            found.append((int(json.loads((path / "trainer_state.json").read_text())["global_step"]), path))
        except (OSError, ValueError, KeyError):
            continue  # cut off in the middle of writing
    return max(found)[1] if found else None
