"""Answer texts from a file or standard input; one JSON object a line comes out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from ..data import read
from ..errors import Failure, UserError, existing
from ..options import DataOptions, TaskOptions
from ..runtime import Predictor
from ..systems import SPELLINGS, opener
from . import arguments as flags
from . import console

CHUNK = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="DIR", help="artifact or model folder")
    parser.add_argument("file", nargs="?", metavar="FILE", help="rows (standard input: a text or JSON value a line)")
    parser.add_argument("--output", metavar="FILE", help="where the answers go (standard output)")
    parser.add_argument("--engine", default="auto", help=f"auto, {', '.join(SPELLINGS)}")
    parser.add_argument("--threads", type=int, help="threads (all cores)")
    parser.add_argument("--batch_size", type=int, default=16, help="rows a batch (16)")
    parser.add_argument("--json", action="store_true", help="print one JSON object with all answers")
    flags.add_options(parser, DataOptions, only=flags.FORM_OPTIONS)
    flags.add_options(parser, TaskOptions)


def run(arguments: argparse.Namespace) -> int:
    """Read, answer, write."""
    data, options = flags.take(arguments, DataOptions), flags.take(arguments, TaskOptions)
    if arguments.file:
        existing(arguments.file, "file")
    else:
        flags.refuse_set(data, flags.FORM_OPTIONS, "FILE")
    if arguments.output:
        _check_output(Path(arguments.output))
    shown = console.progress()
    with opener(options, shown) as open_system:
        predictor = open_system(arguments.model, arguments.engine, arguments.threads).predictor
        predictor = predictor.with_batch_size(arguments.batch_size)
        if arguments.file:
            rows = read(arguments.file, header=data.header)
            examples = predictor.task.read(rows, flags.columns(data), labelled=False)
            with shown.track("predict", len(examples)) as advance:
                _write(_answers(predictor, examples, advance), arguments.output, arguments.json)
        else:
            if sys.stdin.isatty():
                shown.say("Type a text a line; end with Ctrl-D.")
            _write(_from_lines(predictor, _lines(sys.stdin)), arguments.output, arguments.json)
    return 0


def _answers(predictor: Predictor, examples: list[Any], advance: Any) -> Iterator[dict[str, Any]]:
    for start in range(0, len(examples), CHUNK):
        chunk = examples[start : start + CHUNK]
        yield from (answer.as_json() for answer in predictor.answers(chunk))
        advance(len(chunk))


def _lines(stream: TextIO) -> Iterator[str]:
    """Lines as UTF-8, whatever the terminal's own encoding."""
    for number, line in enumerate(getattr(stream, "buffer", stream), 1):
        try:
            yield line.decode("utf-8") if isinstance(line, bytes) else line
        except UnicodeDecodeError:
            raise UserError("The line is not UTF-8.", where=f"standard input:{number}") from None


def _from_lines(predictor: Predictor, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Answer as lines come: at once on a terminal, in chunks from a pipe."""
    size = 1 if sys.stdin.isatty() else CHUNK
    numbered = ((number, line.rstrip("\r\n")) for number, line in enumerate(lines, 1))
    examples = (_example(predictor, number, line) for number, line in numbered if line.strip())
    while chunk := list(islice(examples, size)):
        yield from (answer.as_json() for answer in predictor.answers(chunk))


def _example(predictor: Predictor, number: int, line: str) -> Any:
    """A line of JSON is a mapping, a pair or a list of words; any other line is a text, with one tab a pair."""
    where = f"standard input:{number}"
    value: Any = tuple(line.split("\t")) if line.count("\t") == 1 else line
    if line.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UserError(f"The line looks like JSON but is not: {error}.", where=where) from None
    try:
        return predictor.task.examples([value])[0]
    except UserError as error:
        raise UserError(error.what.replace("Input 0", "The line", 1), where=where, hint=error.hint) from None


def _check_output(place: Path) -> None:
    if place.is_dir() or not place.parent.is_dir():
        reason = "This is a folder" if place.is_dir() else "There is no such folder"
        raise UserError(f"{reason} (option '--output').", where=str(place), hint="Name a file in a folder that exists.")


def _write(answers: Iterable[dict[str, Any]], output: str | None, as_object: bool) -> None:
    if as_object and output is None:
        console.emit({"answers": list(answers)})
        return
    if output is None:
        for answer in answers:
            print(json.dumps(answer, ensure_ascii=False))
        return
    place = Path(output)
    part = place.with_name(f".{place.name}.part")
    rows = 0
    try:
        with part.open("w", encoding="utf-8") as stream:
            for answer in answers:
                stream.write(json.dumps(answer, ensure_ascii=False) + "\n")
                rows += 1
        part.replace(place)
    except OSError as error:
        raise Failure(f"The answers cannot be written: {error.strerror}.", where=output) from None
    finally:
        part.unlink(missing_ok=True)
    if as_object:
        console.emit({"output": output, "rows": rows})
