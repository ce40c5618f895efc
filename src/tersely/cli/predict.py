"""Answer texts from a file or standard input; one JSON object a line comes out, or a table.

Files larger than memory are read in parts. With --output, the same command goes on where an interrupted run was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from .. import artifact as artifacts
from .. import bulk, runtime
from ..bulk.run import Answering
from ..data import LineRows, RowFile
from ..deploy.systems import SPELLINGS, Opener, opener, split_engine
from ..engines.cpu import cpu
from ..errors import UserError, existing, wrong_option
from ..options.data import DataOptions
from ..progress import shown
from ..runtime import Predictor
from ..runtime.predictor import local_folder
from ..tasks import InputError, Task
from ..tasks.options import TaskOptions
from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "artifact, also hub:owner/name, or model folder")
    parser.add_argument("file", nargs="?", metavar="[FILE]", help="rows (standard input: a text or JSON value a line)")
    parser.add_argument(
        "--output", metavar="FILE", help="where the answers go: .jsonl, .csv, .tsv, .parquet (standard output)"
    )
    flags.add_overwrite(parser, "replace an output that exists")
    parser.add_argument("--workers", type=int, help="runtimes, each in a process of its own (1; with --ray all cores)")
    parser.add_argument("--ray", metavar="ADDRESS", help="a Ray cluster's address, or local: workers on its machines")
    parser.add_argument("--engine", default="auto", help=f"auto, {', '.join(SPELLINGS)}")
    parser.add_argument("--threads", type=int, help="threads of each runtime (all cores, shared by the workers)")
    parser.add_argument("--batch_size", type=int, default=16, help="rows a batch (16)")
    flags.add_rows_and_task(parser, flags.FORM_OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    """Read, answer, write."""
    arguments.model, arguments.file = _places(arguments)
    data, options = flags.take(arguments, DataOptions), flags.take(arguments, TaskOptions)
    if arguments.file:
        existing(arguments.file, "file")
    else:
        flags.refuse_set(data, flags.FORM_OPTIONS, "FILE")
    _check_output(arguments)
    arguments.model = local_folder(arguments.model)
    _check_workers(arguments)
    with opener(options, shown(True)) as open_system:
        if arguments.output:
            return _to_file(arguments, data, open_system)
        predictor = _predictor(arguments, open_system)
        answers = _from_file(arguments, data, predictor) if arguments.file else _from_lines(predictor)
        if arguments.json:
            console.emit({"answers": list(answers)})
        else:
            for answer in answers:
                print(json.dumps(answer, ensure_ascii=False))
    return 0


def _places(arguments: argparse.Namespace) -> tuple[str, str | None]:
    """The model and the file of rows. Beside `--model_name_or_path` one word is the file, unless it is a folder."""
    word, flag = arguments.model, arguments.model_name_or_path
    if flag and word and not arguments.file and word != flag and not Path(word).is_dir():
        return flag, word
    return flags.needed_model(arguments), arguments.file


def _to_file(arguments: argparse.Namespace, data: DataOptions, open_system: Opener) -> int:
    """Write all answers, whole or not at all."""
    output, form = Path(arguments.output), bulk.format_of(arguments.output)
    if arguments.workers or arguments.ray:
        task = open_system.task(arguments.model)
        answering = _by_workers(arguments, task, form, open_system)
    else:
        predictor = _predictor(arguments, open_system)
        task, answering = predictor.task, bulk.one_by_one(bulk.answerer(predictor, form))
    rows_read = _rows(arguments, data, task)
    mark = bulk.fingerprint(arguments.model, task, form, arguments.engine, arguments.batch_size)
    rows = bulk.answer_file(rows_read, output, task, form, mark, answering, shown(bool(arguments.file)))
    if arguments.json:
        console.emit({"output": arguments.output, "rows": rows})
    return 0


def _by_workers(arguments: argparse.Namespace, task: Task, form: str, open_system: Opener) -> Answering:
    """Processes here, or actors of Ray. They begin when the rows were looked at; that they can is seen before."""
    engine, precision = split_engine(arguments.engine)
    job = bulk.Job(Path(arguments.model), task, form, engine, precision, arguments.threads or 1, arguments.batch_size)
    if arguments.ray:
        actors, count = bulk.ray_actors(job, arguments.ray, arguments.workers)
        open_system.stack.callback(actors.close)
        return partial(bulk.answered, actors, count)
    if arguments.threads is None:
        job = job.with_threads(max(1, cpu().cores // arguments.workers))
    # Chosen once here too: errors and warnings come before processes begin.
    runtime.choose(artifacts.read(job.folder), engine, job.threads, precision)
    return partial(bulk.answered, bulk.Processes(job), arguments.workers)


def _predictor(arguments: argparse.Namespace, open_system: Opener) -> Predictor:
    system = open_system(arguments.model, arguments.engine, arguments.threads)
    return system.predictor.with_batch_size(arguments.batch_size)


def _rows(arguments: argparse.Namespace, data: DataOptions, task: Task) -> RowFile | LineRows:
    return _row_file(arguments, data, task) if arguments.file else LineRows(_lines(sys.stdin), partial(_example, task))


def _row_file(arguments: argparse.Namespace, data: DataOptions, task: Task) -> RowFile:
    return RowFile.checked(arguments.file, partial(task.read, columns=flags.columns(data), labelled=False), data.header)


def _from_file(arguments: argparse.Namespace, data: DataOptions, predictor: Predictor) -> Iterator[dict[str, Any]]:
    rows = _row_file(arguments, data, predictor.task)
    with shown(True).track("predict", rows.rows) as advance:
        for part in rows:
            yield from (answer.as_json() for answer in predictor.answers(part.examples))
            advance(len(part.examples))


def _from_lines(predictor: Predictor) -> Iterator[dict[str, Any]]:
    """Answer as lines come: at once on a terminal, in parts from a pipe."""
    if not sys.stdin.isatty():
        for part in LineRows(_lines(sys.stdin), partial(_example, predictor.task)):
            yield from (answer.as_json() for answer in predictor.answers(part.examples))
        return
    shown(True).say("Type a text a line; end with Ctrl-D.")
    for number, line in _lines(sys.stdin):
        (answer,) = predictor.answers([_example(predictor.task, number, line)])
        yield answer.as_json()


def _lines(stream: TextIO) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers; UTF-8, whatever the terminal's own encoding."""
    for number, raw in enumerate(getattr(stream, "buffer", stream), 1):
        try:
            line = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        except UnicodeDecodeError:
            raise UserError("The line is not UTF-8.", where=f"standard input:{number}") from None
        if line.strip():
            yield number, line.rstrip("\r\n")


def _example(task: Task, number: int, line: str) -> Any:
    """A line of JSON is a mapping, a pair or a list of words; any other line is a text, with one tab a pair."""
    where = f"standard input:{number}"
    value: Any = tuple(line.split("\t")) if line.count("\t") == 1 else line
    if line.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UserError(f"The line looks like JSON but is not: {error}.", where=where) from None
    try:
        return task.examples([value])[0]
    except UserError as error:
        what = f"The line {error.problem}" if isinstance(error, InputError) else error.what
        raise UserError(what, where=where, hint=error.hint) from None


def _check_output(arguments: argparse.Namespace) -> None:
    """Refuse an output that cannot or must not be written, before anything is read."""
    if not arguments.output:
        if arguments.overwrite:
            raise wrong_option("overwrite", "has no effect without --output.", hint="Leave it out.")
        return
    place = Path(arguments.output)
    if place.is_dir() or not place.parent.is_dir():
        reason = "This is a folder" if place.is_dir() else "There is no such folder"
        raise UserError(f"{reason} (option '--output').", where=str(place), hint="Name a file in a folder that exists.")
    bulk.format_of(place)
    if arguments.file and place.exists() and place.samefile(arguments.file):
        raise UserError(
            "The output is the file with the rows (option '--output').", where=str(place), hint="Name another."
        )
    if place.exists() and not arguments.overwrite:
        raise UserError("The output exists (option '--output').", where=str(place), hint="Replace it with --overwrite.")


def _check_workers(arguments: argparse.Namespace) -> None:
    for name in ("workers", "threads"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise wrong_option(name, f"must be at least 1. Got {value}.")
    for name in ("workers", "ray"):
        if getattr(arguments, name) is None:
            continue
        if not arguments.output:
            raise wrong_option(name, "has no effect without --output.", hint="Say where answers go.")
        folder = existing(arguments.model, "folder")
        if not artifacts.is_artifact(folder) or split_engine(arguments.engine)[0] == "torch":
            hint = "Make one with: tersely export"
            raise wrong_option(name, "needs an artifact; this is a model for torch.", where=str(folder), hint=hint)
