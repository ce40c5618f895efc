"""`Job`: what every worker does. It opens the artifact once, then turns parts into bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import __version__, runtime
from ..artifact import MANIFEST, is_artifact, sha256
from ..runtime import Predictor
from ..tasks import Task, to_json
from .write_parts import FORMATS

Answerer = Callable[[Sequence[Any]], bytes]


@dataclass(frozen=True)
class Job:
    """An artifact, the task to run it for, and how; small enough to be sent anywhere."""

    folder: Path
    task: Task
    format: str
    engine: str = "auto"
    precision: str | None = None
    threads: int = 1
    batch_size: int = 16

    def with_threads(self, threads: int) -> Job:
        """The same with another number of threads."""
        return replace(self, threads=threads)

    def open(self) -> Answerer:
        """Load the runtime into this process, which is a worker's own."""
        # The tokenizer takes every core otherwise, those of the other workers too.
        os.environ["TOKENIZERS_PARALLELISM"] = "false" if self.threads == 1 else "true"
        os.environ["RAYON_NUM_THREADS"] = str(self.threads)
        FORMATS[self.format].check()  # another machine may lack a package that this one has
        predictor = runtime.load(self.folder, self.engine, self.threads, precision=self.precision)
        return answerer(replace(predictor, task=self.task, batch_size=self.batch_size), self.format)


def answerer(predictor: Predictor, format: str) -> Answerer:
    """Examples to the bytes of a part."""
    write, columns = FORMATS[format].part, predictor.task.answer_columns
    return lambda examples: write([answer.as_json() for answer in predictor.answers(examples)], columns)


def fingerprint(model: str | Path, task: Task, format: str, engine: str, batch_size: int) -> str:
    """Everything but the rows that decides what a part holds."""
    model = Path(model)
    if is_artifact(model):
        files = [sha256(model / MANIFEST)]  # which has the checksums of all others
    else:
        files = [repr((path.name, path.stat().st_size, path.stat().st_mtime_ns)) for path in sorted(model.iterdir())]
    content = [files, to_json(task), format, engine, batch_size, __version__]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
