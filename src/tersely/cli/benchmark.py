"""Time models and engines against each other in one alternating run; ratios above 1 are faster than the baseline."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .. import artifact as artifacts
from .. import engines
from ..data import read
from ..data.rows import Rows
from ..deploy.systems import SPELLINGS, Opener, System, opener, split_engine, tokenize_with
from ..engines.cpu import cpu
from ..errors import UserError, existing, missing_package, nearest, wrong_option
from ..measure.benchmark import Contestant, Timing, alternate, full_batch
from ..measure.footprint import footprint
from ..options.data import DataOptions
from ..runtime.predictor import local_folder
from ..tasks import Columns
from ..tasks.options import TaskOptions
from . import arguments as flags
from . import console

PIPELINE = "pipeline"
WITHOUT_ARTIFACTS = ("torch", PIPELINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "model folders or artifacts, also hub:owner/name", several=True)
    parser.add_argument(
        "--engines", nargs="+", metavar="ENGINE", help=f"{', '.join(SPELLINGS)}; {PIPELINE} with --rows (installed)"
    )
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=[1, 16], metavar="N", help="rows a batch (1 16)")
    parser.add_argument("--lengths", nargs="+", type=int, default=[128], metavar="N", help="pieces a row (128)")
    parser.add_argument("--threads", nargs="+", type=int, metavar="N", help="threads (1, and all cores)")
    parser.add_argument("--rows", metavar="FILE", help="time answering these rows, texts to answers, instead")
    parser.add_argument("--baseline", metavar="NAME", help="'MODEL ENGINE' or ENGINE that is 1.00 (the first)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each contestant in each cell (2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    flags.add_options(parser, DataOptions, only=flags.FORM_OPTIONS)
    flags.add_options(parser, TaskOptions)


def run(arguments: argparse.Namespace) -> int:
    """Open everything, take turns, print."""
    cores = cpu().cores
    threads = arguments.threads or sorted({1, cores})
    arguments.models = [str(local_folder(model)) for model in flags.needed_model(arguments)]
    _check(arguments, threads)
    rows = read(arguments.rows, header=arguments.header) if arguments.rows else None
    shown = _names(arguments.models)
    cells: list[dict[str, Any]] = []
    with opener(flags.take(arguments, TaskOptions), console.progress()) as open_system:
        names = [(model, engine) for model in arguments.models for engine in _engines(model, arguments)]
        for count in threads:
            tokenize_with(count)
            systems = [
                replace(open_system(model, engine, count), model=shown[model])
                for model, engine in names
                if engine != PIPELINE
            ]
            if rows is not None:
                pipelines = [model for model, engine in names if engine == PIPELINE]
                cells += _rows_cells(arguments, open_system, systems, {m: shown[m] for m in pipelines}, rows, count)
            else:
                cells += _batch_cells(arguments, systems, count)
        footprints = _footprints(systems, arguments)
    here = cpu()
    result = {
        "cpu": {"class": here.cpu_class, "name": here.name, "cores": here.cores},
        "cells": cells,
        "footprints": footprints,
    }
    if arguments.json:
        console.emit(result)
    else:
        _print(result, arguments.rows)
    return 0


def _check(arguments: argparse.Namespace, threads: Sequence[int]) -> None:
    for option, values in (
        ("batch_sizes", arguments.batch_sizes),
        ("lengths", arguments.lengths),
        ("threads", threads),
    ):
        if min(values) < 1:
            raise wrong_option(option, f"must hold numbers of at least 1. Got {min(values)}.")
    if not 0 < arguments.seconds < float("inf"):
        raise wrong_option("seconds", f"must be above 0. Got {arguments.seconds}.")
    if not arguments.rows:
        flags.refuse_set(arguments, {*flags.FORM_OPTIONS, *TaskOptions.__dataclass_fields__}, "--rows")
    for engine in arguments.engines or ():
        if engine == PIPELINE:
            if not arguments.rows:
                raise UserError("The engine 'pipeline' takes texts, not batches.", hint="Give rows with --rows.")
        else:
            split_engine(engine)
    packed = [artifacts.is_artifact(existing(model, "folder")) for model in arguments.models]
    for engine in arguments.engines or ():
        if engine in WITHOUT_ARTIFACTS and all(packed):
            raise UserError(f"An artifact does not run on {engine}.", where=arguments.models[0])
    if arguments.rows:
        existing(arguments.rows, "file")
    if len(set(arguments.models)) < len(arguments.models):
        raise UserError("A model is named twice.", hint="Name each once.")


def _engines(model: str, arguments: argparse.Namespace) -> list[str]:
    """The engines to time a model on: an artifact runs on all but torch and its pipeline."""
    packed = artifacts.is_artifact(model)
    wanted = arguments.engines or [name for name in ("torch", "onnxruntime", "openvino") if name in engines.installed()]
    fitting = [name for name in wanted if not (packed and name in WITHOUT_ARTIFACTS)]
    if not fitting:
        raise UserError(f"An artifact runs on none of {', '.join(wanted)}.", where=model)
    return fitting


def _names(models: Sequence[str]) -> dict[str, str]:
    """Call models by their folders' names, or by their paths where two folders have one name."""
    names = [Path(model).resolve().name for model in models]
    return {model: name if names.count(name) == 1 else model for model, name in zip(models, names, strict=True)}


def _batch_cells(arguments: argparse.Namespace, systems: list[System], threads: int) -> list[dict[str, Any]]:
    cells = []
    for batch_size in arguments.batch_sizes:
        for length in arguments.lengths:
            contestants = []
            for system in systems:
                if system.longest is not None and length > system.longest:
                    what = f"The '--lengths' option holds {length}, but {system.model} has {system.longest} positions."
                    raise UserError(what)
                batch = full_batch(batch_size, length, system.predictor.encoder.vocab_size)
                contestants.append(Contestant(system.model, system.engine, _runs(system, batch)))
            title = f"batch {batch_size}, length {length}, {_threads(threads)}"
            place = {"batch": batch_size, "length": length, "threads": threads}
            cells += [{**place, **asdict(cell)} for cell in _alternate(contestants, arguments, title)]
    return cells


def _rows_cells(
    arguments: argparse.Namespace,
    open_system: Opener,
    systems: list[System],
    pipelines: dict[str, str],
    rows: Rows,
    threads: int,
) -> list[dict[str, Any]]:
    columns = flags.columns(flags.take(arguments, DataOptions))
    cells = []
    for batch_size in arguments.batch_sizes:
        contestants = []
        for system in systems:
            examples = system.predictor.task.read(rows, columns, labelled=False)
            contestants.append(Contestant(system.model, system.engine, _answers(system, examples, batch_size)))
        for model, name in pipelines.items():
            work = _pipeline(model, open_system, rows, columns, batch_size, threads)
            contestants.append(Contestant(name, PIPELINE, work))
        title = f"{len(rows)} rows, batch {batch_size}, {_threads(threads)}"
        for cell in _alternate(contestants, arguments, title):
            place = {"batch": batch_size, "length": None, "threads": threads, "rows": len(rows)}
            cells.append({**place, **asdict(cell), "rows_per_second": len(rows) / cell.seconds})
    return cells


def _pipeline(
    model: str, open_system: Opener, rows: Rows, columns: Columns, batch_size: int, threads: int
) -> Callable[[], object]:
    try:
        from ..deploy.pipeline import pipeline_work
    except ImportError:
        raise missing_package("transformers", "the engine 'pipeline'", "compress") from None
    from ..models.folder import open_folder

    task = open_folder(model, open_system.options).task
    examples = task.read(rows, columns, labelled=False)
    inputs = [_plain(example) for example in examples]
    return pipeline_work(Path(model), task, inputs, batch_size=batch_size, threads=threads)


def _plain(example: Any) -> Any:
    """What a pipeline is fed for an example."""
    if hasattr(example, "question"):
        return {"question": example.question, "context": example.context}
    second = getattr(example, "text_pair", None)
    return (example.text, second) if second is not None else example.text


def _alternate(contestants: list[Contestant], arguments: argparse.Namespace, title: str) -> list[Timing]:
    baseline = contestants[0].label
    if arguments.baseline:
        names = [contestant.label for contestant in contestants]
        fitting = [c.label for c in contestants if arguments.baseline in (c.label, c.engine, c.model)]
        if not fitting:
            raise UserError(
                f"The baseline '{arguments.baseline}' is none of these.", hint=nearest(arguments.baseline, names)
            )
        baseline = fitting[0]
    return alternate(contestants, baseline, seconds=arguments.seconds, title=title, progress=console.progress())


def _footprints(systems: list[System], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for system in systems:
        base, precision = split_engine(system.engine)
        length = min(arguments.lengths[0], system.longest or arguments.lengths[0])
        cost = footprint(base, system.source, precision=precision or "fp32", length=length)
        found.append({"model": system.model, "engine": system.engine, "size_mb": system.size / 1e6, **asdict(cost)})
    return found


def _runs(system: System, batch: Any) -> Any:
    return lambda: system.predictor.engine.run(batch)


def _answers(system: System, examples: list[Any], batch_size: int) -> Any:
    predictor = system.predictor.with_batch_size(batch_size)
    return lambda: predictor.answers(examples)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _print(result: dict[str, Any], rows: str | None) -> None:
    here = result["cpu"]
    head = ["model", "engine", "threads", "batch", "length", "ms", "×", "spread"]
    table = []
    for cell in result["cells"]:
        low, high = cell["spread"]
        speed = f"{cell['rows_per_second']:.1f}" if rows else f"{1000 * cell['seconds']:.2f}"
        length = "mixed" if rows else cell["length"]
        spread = f"{low:.2f} to {high:.2f}"
        table.append(
            [
                cell["model"],
                cell["engine"],
                cell["threads"],
                cell["batch"],
                length,
                speed,
                f"{cell['ratio']:.2f}",
                spread,
            ]
        )
    if rows:
        head[5] = "rows/s"
    console.table(f"speed on CPU class {here['class']} ({here['name']}, {here['cores']} cores)", head, table)
    head = ["model", "engine", "size MB", "load s", "memory MB", "peak MB"]
    table = [
        [
            cost["model"],
            cost["engine"],
            f"{cost['size_mb']:.1f}",
            f"{cost['load_seconds']:.2f}",
            f"{cost['memory_mb']:.0f}",
            f"{cost['peak_memory_mb']:.0f}",
        ]
        for cost in result["footprints"]
    ]
    console.table("loading, one thread, a process of its own, its libraries included", head, table)
