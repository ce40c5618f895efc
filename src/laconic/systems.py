"""Open whatever the user names, a model folder or an artifact, on whichever engine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import artifact as artifacts
from . import engines, runtime
from .errors import UserError, existing, nearest
from .options import TaskOptions
from .progress import SILENT, Progress
from .runtime import Predictor

SPELLINGS = (*engines.ENGINES, "openvino-bf16")


@dataclass(frozen=True)
class System:
    """A model on an engine, ready to answer; `source` is what the engine loaded."""

    model: str
    engine: str
    source: Path
    predictor: Predictor


@dataclass
class Opener:
    """Opens systems; what it had to export on the way is kept until it is closed."""

    options: TaskOptions
    progress: Progress
    stack: ExitStack
    exported: dict[Path, Path] = field(default_factory=dict)

    def __call__(self, path: str | Path, engine: str = "auto", threads: int | None = None) -> System:
        """Open a folder on an engine: `auto`, a name, or `openvino-bf16`."""
        path = existing(path, "folder")
        name = path.absolute().name
        if artifacts.is_artifact(path):
            if engine.startswith("torch"):
                raise UserError("An artifact does not run on torch.", where=str(path), hint="Give the model folder.")
            return self._artifact(name, path, engine, threads)
        if engine in ("auto", "torch"):
            return self._folder(name, path, threads)
        return self._artifact(name, self._export(path), engine, threads)

    def _artifact(self, name: str, path: Path, engine: str, threads: int | None) -> System:
        base, precision = split_engine(engine)
        predictor = runtime.load(path, base, threads, precision=precision)
        task = self._with_options(predictor.task)
        predictor = Predictor(task, predictor.encoder, predictor.engine)
        graph, _ = runtime.choose(artifacts.read(path, verify=False), base)
        shown = predictor.engine.name + (f"-{precision}" if precision else "")
        return System(name, shown, path / graph.path, predictor)

    def _folder(self, name: str, path: Path, threads: int | None) -> System:
        from .folder import open_folder

        opened = open_folder(path, self.options)
        predictor = Predictor(opened.task, opened.encoder, engines.load("torch", path, threads=threads))
        return System(name, "torch", path, predictor)

    def _export(self, path: Path) -> Path:
        from .export import export
        from .folder import open_folder

        if path not in self.exported:
            self.progress.say(f"{path} is a model folder: exporting it to ONNX first.")
            scratch = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
            export(open_folder(path, self.options), scratch / path.absolute().name, progress=self.progress)
            self.exported[path] = scratch / path.absolute().name
        return self.exported[path]

    def _with_options(self, task: Any) -> Any:
        """Let options given now win over what the artifact was made with."""
        from .tasks import from_json, to_json

        settings = to_json(task)
        for option, value in self.options.chosen().items():
            if option not in settings:
                raise UserError(f"The '--{option}' option has no effect on {task.name}.", hint="Leave it out.")
            settings[option] = value
        changed = from_json(settings)
        if changed.metric not in changed.metrics:
            raise UserError(
                f"The metric '{changed.metric}' does not fit {task.name} with this model.",
                hint=nearest(changed.metric, changed.metrics),
            )
        return changed


@contextmanager
def opener(options: TaskOptions | None = None, progress: Progress = SILENT) -> Iterator[Opener]:
    """Give an `Opener` and clean up behind it."""
    with ExitStack() as stack:
        yield Opener(options or TaskOptions(), progress, stack)


def split_engine(spelling: str) -> tuple[str, str | None]:
    """Take the precision off an engine's name.

    >>> split_engine("openvino-bf16"), split_engine("onnxruntime")
    (('openvino', 'bf16'), ('onnxruntime', None))
    """
    base, _, precision = spelling.partition("-")
    if spelling != "auto" and spelling not in SPELLINGS:
        raise UserError(f"There is no engine '{spelling}'.", hint=nearest(spelling, SPELLINGS))
    return base, precision or None


def one_thread_everywhere() -> None:
    """Keep the tokenizer, which takes every core otherwise, to one thread in this process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
