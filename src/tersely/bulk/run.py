"""The story of bulk prediction: parts in, those that are not done yet answered, one file out."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import __version__, runtime
from ..artifact import MANIFEST, is_artifact, sha256
from ..data import LineRows, Part, RowFile
from ..progress import SILENT, Progress
from ..runtime import Predictor
from ..tasks import Task, to_json
from .unfinished import Unfinished
from .write_parts import FORMATS

Answerer = Callable[[Sequence[Any]], bytes]
"""Examples to the bytes of a part."""

Answering = Callable[[Iterable[Part]], Iterator[tuple[Part, bytes]]]
"""Gives every part with its bytes, in any order; takes the next one when it can begin it."""


def answer_file(
    source: RowFile | LineRows,
    output: Path,
    task: Task,
    format: str,
    mark: str,
    answering: Answering,
    progress: Progress = SILENT,
) -> int:
    """Write the answers to all rows; gives how many. `mark`: what decides a part's bytes beside its rows."""
    rows = done = 0
    with Unfinished(output, mark, source.resumable) as unfinished, progress.track("predict", source.rows) as advance:

        def left() -> Iterator[Part]:
            nonlocal rows, done
            for part in source:
                rows += len(part.examples)
                if unfinished.has(part):
                    if not done:
                        progress.say("An earlier run was interrupted; going on where it was.")
                    done += len(part.examples)
                    advance(len(part.examples))
                else:
                    yield part

        for part, content in answering(left()):
            unfinished.keep(part, content)
            advance(len(part.examples))
        unfinished.finish(FORMATS[format], task.answer_columns)
    return rows


def one_by_one(answer: Answerer) -> Answering:
    """Answer in this process, with one runtime."""
    return lambda parts: ((part, answer(part.examples)) for part in parts)


def answerer(predictor: Predictor, format: str) -> Answerer:
    """Examples to the bytes of a part."""
    write, columns = FORMATS[format].part, predictor.task.answer_columns
    return lambda examples: write([answer.as_json() for answer in predictor.answers(examples)], columns)


@dataclass(frozen=True)
class Job:
    """What every worker does: an artifact, the task to run it for, and how. Small enough to be sent anywhere."""

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


def fingerprint(model: str | Path, task: Task, format: str, engine: str, batch_size: int) -> str:
    """Everything but the rows that decides what a part holds."""
    model = Path(model)
    if is_artifact(model):
        files = [sha256(model / MANIFEST)]  # which has the checksums of all others
    else:
        files = [repr((path.name, path.stat().st_size, path.stat().st_mtime_ns)) for path in sorted(model.iterdir())]
    content = [files, to_json(task), format, engine, batch_size, __version__]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
