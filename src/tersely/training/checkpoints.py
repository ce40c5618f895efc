"""What a training keeps on disk, so that a kill at any moment loses little: whose checkpoints these are, the last
whole one, the best of each network so far, and the result.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import TrainingArguments

from .. import __version__, tasks
from ..artifact import sha256
from ..errors import Failure, UserError
from ..measure.score import Answers, Score
from ..models import folder
from ..progress import Progress
from ..tasks import Task

RUN = "run.txt"
"""File in the work folder that says, by a hash, what its checkpoints are of."""
RECORD = "best.json"
"""File of a checkpoint: what was best when it was written."""
RESULT = "result.json"
"""File in the work folder of a finished training: the best of each network."""


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
        for part in dataclasses.fields(value):
            yield from _parts(getattr(value, part.name))
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in sorted(value, key=repr):
            yield from (*_parts(key), *_parts(value[key]))
    elif isinstance(value, (list, tuple, np.ndarray)):
        yield f"list {len(value)}".encode()
        for element in value:
            yield from _parts(element)
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


def check_work(work: Path) -> None:
    """Refuse a place that holds anything but an earlier training: its content may have to go."""
    if work.exists() and (not work.is_dir() or (any(work.iterdir()) and not (work / RUN).is_file())):
        what = "The work folder holds files that no earlier training left there."
        raise UserError(what, where=str(work), hint="Name a folder that is empty or does not exist.")


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


@dataclass(frozen=True)
class Best:
    """The best state of a network so far: its step, its score without answers and logits, where it lies.

    `moved`: how far its logits are from its teacher's, where that is asked for.
    """

    step: int
    score: Score
    folder: Path
    moved: float | None = None


@dataclass
class KeepBest:
    """Keeps `work/step-<n>/<name>/` for each name: the model that scored best, of equal ones the latest.

    Where it is given how far the logits of each have moved, of equal ones the one that has moved least.

    What a new best replaces stays until the next checkpoint is whole: a run that goes on from an older one finds
    what that one knew of.
    """

    work: Path
    task: Task
    write: Callable[[Any, Path], object]
    """Writes a model as a folder, whole or not at all; one that is there is replaced."""
    writes: bool = True
    """False on all but one of several processes."""
    less_is_better: bool = False
    """Whether what is offered as a score is a distance, not the task's metric."""
    best: dict[str, Best] = field(default_factory=dict)

    def offer(self, name: str, model: Any, step: int, score: Score, moved: float | None = None) -> bool:
        """Keep a model if none before it was better; it is written at once."""
        if name in self.best:
            other = self.best[name]
            further = moved is not None and other.moved is not None and moved > other.moved
            if self._worse(score, other.score) or (further and not self._worse(other.score, score)):
                return False
        place = self.work / f"step-{step}" / name
        if self.writes:
            self.write(model, place)
        self.best[name] = Best(step, score_from_json(score_to_json(score)), place, moved)
        return True

    def save(self, place: Path) -> None:
        """Write the record of a checkpoint."""
        _write_json(place, {name: {**_plain(best), "moved": best.moved} for name, best in self.best.items()})

    def load(self, place: Path) -> None:
        """Go on from the record of a checkpoint."""
        content = json.loads(place.read_text(encoding="utf-8"))
        self.best = {name: _best(self.work, name, plain) for name, plain in content.items()}

    def forget_others(self) -> None:
        """Remove what a newer best has replaced; to be called when the record is safe."""
        if not self.writes:
            return
        kept = {best.folder for best in self.best.values()}
        for step in self.work.glob("step-*"):
            for path in step.iterdir():
                if path not in kept:
                    shutil.rmtree(path, ignore_errors=True)
            if not any(step.iterdir()):
                step.rmdir()

    def finish(self, mark: str) -> None:
        """Write the best of each name whole, and only then let go of the checkpoints and of what they know of."""
        part = self.work / f"{RESULT}.part"
        _write_json(part, {"run": mark, "best": {name: _plain(best) for name, best in self.best.items()}})
        part.replace(self.work / RESULT)
        _forget_checkpoints(self.work)
        self.forget_others()

    def _worse(self, score: Score, other: Score) -> bool:
        if score.value != score.value:  # NaN: a correlation of answers that are all the same
            return True
        if other.value != other.value:
            return False
        greater = not self.less_is_better and self.task.metrics[self.task.metric].greater_is_better
        return score.value < other.value if greater else score.value > other.value


def read_result(work: Path, mark: str, names: Sequence[str], file: str) -> dict[str, Best] | None:
    """The best of each name of a finished training, if it was the same one and each has this file; else None."""
    try:
        content = json.loads((work / RESULT).read_text(encoding="utf-8"))
        if content["run"] != mark:
            return None
        found = {name: _best(work, name, content["best"][name]) for name in names}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not all((best.folder / file).is_file() for best in found.values()):
        return None
    _forget_checkpoints(work)
    return found


def score_to_json(score: Score) -> dict[str, Any]:
    """All but answers and logits."""
    return {name: getattr(score, name) for name in ("metric", "value", "interval", "metrics", "rows", "seconds")}


def score_from_json(content: Mapping[str, Any]) -> Score:
    """What `score_to_json` gave; without answers and logits."""
    ends = content["interval"]
    answers = Answers(content["rows"], content["seconds"], [], [])
    interval = None if ends is None else (float(ends[0]), float(ends[1]))
    return Score(content["metric"], content["value"], interval, content["metrics"], answers)


@contextmanager
def kept_for_later(work: Path) -> Iterator[None]:
    """Of a training: a full disk leaves the work folder for a later run to go on from, other errors do not."""
    try:
        with as_os_errors():
            yield
    except (OSError, UserError) as error:
        disk = error if isinstance(error, OSError) else error.__context__  # of a folder that could not appear whole
        if not isinstance(disk, OSError):  # a rerun would only come to the same end
            shutil.rmtree(work, ignore_errors=True)
            raise
        hint = "Make room and run it again: it goes on from its last checkpoint."
        raise Failure(f"Writing failed: {disk.strerror or disk}.", where=str(work), hint=hint) from disk


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Raise what safetensors and torch call a failed write, on a full disk, as the OSError that it is."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(str(error)) from error
    except RuntimeError as error:
        if "PytorchStreamWriter" not in str(error) and "inline_container" not in str(error):
            raise
        raise OSError(str(error).splitlines()[0]) from error


def _plain(best: Best) -> dict[str, Any]:
    return {"step": best.step, "score": score_to_json(best.score)}


def _best(work: Path, name: str, plain: Mapping[str, Any]) -> Best:
    step = int(plain["step"])
    return Best(step, score_from_json(plain["score"]), work / f"step-{step}" / name, plain.get("moved"))


def _write_json(place: Path, content: Mapping[str, Any]) -> None:
    place.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _forget_checkpoints(work: Path) -> None:
    """Remove what only a training that is not finished needs."""
    for path in work.glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
