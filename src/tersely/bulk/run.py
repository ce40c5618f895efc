"""The story of bulk prediction: parts in, those that are not done yet answered, one file out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..progress import SILENT, Progress
from ..tasks import Task
from .job import Answerer, Job
from .read_parts import LineRows, Part, RowFile
from .teamwork import Team
from .unfinished import Unfinished
from .write_parts import FORMATS

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


def ray_actors(job: Job, address: str, workers: int | None) -> tuple[Team, int]:
    """Workers on a Ray cluster, and how many: as many as it has room for unless said."""
    from .ray_workers import RayActors  # the package is an extra

    team = RayActors(job, address)
    return team, workers or max(1, team.cores // job.threads)


def one_by_one(answer: Answerer) -> Answering:
    """Answer in this process, with one runtime."""
    return lambda parts: ((part, answer(part.examples)) for part in parts)
