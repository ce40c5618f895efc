"""Open whatever the user names, a model folder or an artifact, on whichever engine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import artifact as artifacts
from .. import engines, runtime
from ..artifact import Artifact
from ..errors import UserError, existing, nearest
from ..models.families import longest
from ..models.folder import make_task, open_folder, read_config
from ..models.load import load_model
from ..progress import SILENT, Progress
from ..runtime import Predictor
from ..tasks import Columns, Task, from_json, to_json
from ..tasks.options import TaskOptions

SPELLINGS = (
    *engines.ENGINES,
    *(f"{name}-bf16" for name, facts in engines.ENGINES.items() if "bf16" in facts.precisions),
)
"""How users name engines: the name, or with the precision that float parts are to run in."""


@dataclass(frozen=True)
class System:
    """A model on an engine, ready to answer; `loaded`: the file or folder that its engine read."""

    model: str
    engine: str
    loaded: Path
    predictor: Predictor
    folder: Path
    """Where its config lies."""
    size: int
    """Bytes on disk that the engine reads: the graph and the files with its weights, or the folder's weights."""

    @property
    def longest(self) -> int | None:
        """How many tokens the model has positions for; None: any number."""
        return longest(read_config(self.folder))


@dataclass
class Opener:
    """Opens systems; what it had to export on the way is kept until it is closed."""

    options: TaskOptions
    progress: Progress
    stack: ExitStack
    exported: dict[Path, Artifact] = field(default_factory=dict)

    def __call__(self, path: str | Path, engine: str = "auto", threads: int | None = None) -> System:
        """Open a folder on an engine: `auto`, a name, or `openvino-bf16`."""
        path = existing(path, "folder")
        base, precision = split_engine(engine)
        if artifacts.is_artifact(path):
            if base == "torch":
                raise UserError("An artifact does not run on torch.", where=str(path), hint="Give the model folder.")
            return self._artifact(path, artifacts.read(path), base, precision, threads)
        if base in ("auto", "torch"):
            return self._folder(path, threads)
        return self._artifact(path, self._export(path), base, precision, threads)

    def task(self, path: str | Path) -> Task:
        """The task of an artifact, with the options given now; no engine is loaded."""
        return self._task(artifacts.read(path))

    def _artifact(
        self, path: Path, opened: Artifact, engine: str, precision: str | None, threads: int | None
    ) -> System:
        graph, name = runtime.choose(opened, engine, threads, precision)
        task, loaded = self._task(opened), opened.path(graph.path)
        runner = engines.load(name, loaded, threads=threads, precision=precision or graph.precision)
        shown = f"{name}-{precision}" if precision else name
        predictor = Predictor(task, runtime.open_encoder(opened), runner)
        return System(path.resolve().name, shown, loaded, predictor, opened.folder, opened.loaded_bytes(graph))

    def _task(self, opened: Artifact) -> Task:
        """Let options given now win over what the artifact was made with."""
        task = from_json(opened.manifest.task)
        if self.options == TaskOptions():
            return task
        settings = to_json(task)
        where = str(opened.folder)
        return make_task(settings.pop("name"), settings, self.options, read_config(opened.folder), where=where)

    def _folder(self, path: Path, threads: int | None) -> System:
        opened = open_folder(path, self.options)
        runner = engines.load("torch", load_model(path), threads=threads)
        predictor = Predictor(opened.task, opened.encoder, runner)
        size = sum(file.stat().st_size for file in path.iterdir() if file.suffix in (".safetensors", ".bin"))
        return System(path.resolve().name, "torch", path, predictor, path, size)

    def _export(self, path: Path) -> Artifact:
        from .from_model import write_artifact

        if path not in self.exported:
            self.progress.say(f"{path} is a model folder: exporting it to ONNX first.")
            scratch = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
            folder = open_folder(path, self.options)
            done = write_artifact(folder, scratch / path.resolve().name, progress=self.progress)
            self.exported[path] = done.artifact
        return self.exported[path]


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


def task_and_columns(arguments: Mapping[str, Any]) -> tuple[TaskOptions, Columns]:
    """Take the options of the task and the names of columns out of a public function's arguments."""
    options = {name: arguments[name] for name in TaskOptions.__dataclass_fields__}
    columns = {name: arguments[f"{name}_column"] for name in Columns.__dataclass_fields__}
    return TaskOptions(**options), Columns(**columns)


def tokenize_with(threads: int) -> None:
    """Keep the tokenizer, which takes every core otherwise, to one thread in this process where that is the rule."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
