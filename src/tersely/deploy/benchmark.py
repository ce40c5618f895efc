"""`tersely.benchmark`: time models and engines against each other in one alternating run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from .. import artifact as artifacts
from .. import engines as known_engines
from ..data import Rows, RowSource, rows_of
from ..engines.cpu import Cpu, cpu
from ..errors import UserError, existing, missing_package, nearest, refuse_idle, wrong_option
from ..measure.benchmark import Cell, Contestant, Timing, alternate, check_grid, full_batch, threads_text
from ..measure.footprint import footprint
from ..measure.tables import aligned
from ..models.folder import open_folder
from ..progress import Progress, shown
from ..runtime.predictor import local_folder
from ..tasks import Columns
from ..tasks.options import TaskOptions
from .systems import System, opener, split_engine, task_and_columns, tokenize_with

PIPELINE = "pipeline"
"""`transformers.pipeline`: a yardstick, not an engine of ours."""
WITHOUT_ARTIFACTS = ("torch", PIPELINE)


@dataclass(frozen=True)
class LoadingCost:
    """What loading a model on an engine costs, with one thread, in a process of its own.

    Attributes:
        model: The folder's name.
        engine: The engine.
        size_mb: Megabytes on disk that the engine reads.
        load_seconds: Seconds to load it, without the engine's library.
        memory_mb: Memory of the process after a first batch, its libraries included.
        peak_memory_mb: The most that it took.
    """

    model: str
    engine: str
    size_mb: float
    load_seconds: float
    memory_mb: float
    peak_memory_mb: float


@dataclass(frozen=True, repr=False)
class Benchmark:
    """What `tersely.benchmark` measured.

    Attributes:
        cpu: The machine's CPU, with its class.
        cells: A timing for each model, engine, number of threads, batch size and length.
        footprints: What loading each model on each engine costs.
    """

    cpu: Cpu
    cells: tuple[Cell, ...]
    footprints: tuple[LoadingCost, ...]

    def __repr__(self) -> str:
        """A small table: a line for each cell."""
        head = ["model", "engine", "threads", "batch", "length", "ms", "×"]
        rows = []
        for cell in self.cells:
            timing, length = cell.timing, "mixed" if cell.rows else cell.length
            speed = [f"{1000 * timing.seconds:.2f}", f"{timing.ratio:.2f}"]
            rows.append([timing.model, timing.engine, cell.threads, cell.batch, length, *speed])
        return aligned(head, rows)

    def as_json(self) -> dict[str, Any]:
        """Give plain types, as `tersely benchmark --json` prints them."""
        cells = []
        for cell in self.cells:
            place: dict[str, Any] = {"batch": cell.batch, "length": cell.length, "threads": cell.threads}
            if cell.rows is None:
                cells.append({**place, **asdict(cell.timing)})
            else:
                speed = cell.rows / cell.timing.seconds
                cells.append({**place, "rows": cell.rows, **asdict(cell.timing), "rows_per_second": speed})
        here = {"class": self.cpu.cpu_class, "name": self.cpu.name, "cores": self.cpu.cores}
        return {"cpu": here, "cells": cells, "footprints": [asdict(cost) for cost in self.footprints]}


def benchmark(
    models: str | Path | Sequence[str | Path],
    *,
    engines: Sequence[str] | None = None,
    batch_sizes: Sequence[int] = (1, 16),
    lengths: Sequence[int] = (128,),
    threads: int | Sequence[int] = 1,
    rows: RowSource | None = None,
    baseline: str | None = None,
    seconds: float = 2.0,
    # generated from the options: make docs
    task: str | None = None,
    metric: str | None = None,
    max_seq_length: int | None = None,
    doc_stride: int | None = None,
    n_best_size: int | None = None,
    max_answer_length: int | None = None,
    max_query_length: int | None = None,
    null_score_diff_threshold: float | None = None,
    no_answer: bool | None = None,
    answer_language: Literal["auto", "en", "zh"] | None = None,
    header: bool | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    words_column: str | None = None,
    tags_column: str | None = None,
    question_column: str | None = None,
    context_column: str | None = None,
    answers_column: str | None = None,
    # end of generated
    progress: Progress | bool | None = None,
) -> Benchmark:
    """Time models and engines against each other in one alternating run.

    What slows the machine meanwhile slows all of them, so that the ratios stay true.

    Args:
        models: A model folder or an artifact, also `hub:owner/name`; or several.
        engines: The engines to time ("torch", "onnxruntime", "openvino", those that are installed), also
            "openvino-bf16"; "pipeline" is transformers' own, with `rows`.
        batch_sizes: Rows a batch.
        lengths: Tokens a row.
        threads: How many threads, or several numbers, each timed.
        rows: Time answering these rows, texts to answers, instead of batches of random tokens: a file, a
            `datasets.Dataset`, or a list of mappings.
        baseline: Whose ratio is 1: "MODEL ENGINE", an engine or a model (the first).
        seconds: The time for each contestant in each cell.
        task: sequence_classification, multi_label_classification, regression, token_classification, question_answering
            (read from the model where it can be).
        metric: The number that chooses; the task's own unless set.
        max_seq_length: Tokens a sequence may have (128; question answering 384).
        doc_stride: Tokens that two windows of one context share (128, at most half of the room).
        n_best_size: Starts and ends to look at for an answer (20).
        max_answer_length: Tokens an answer may have (30).
        max_query_length: Tokens a question may have (64).
        null_score_diff_threshold: How much better 'no answer' must be to be given (0).
        no_answer: Questions may have no answer, as in SQuAD 2.
        answer_language: auto, en (SQuAD's rule) or zh (CMRC 2018's rule).
        header: Whether csv and tsv files begin with column names (seen by itself unless set).
        text_column: Column of the text.
        text_pair_column: Column of the second text.
        label_column: Column of the label.
        words_column: Column of the words.
        tags_column: Column of the tags.
        question_column: Column of the question.
        context_column: Column of the context.
        answers_column: Column of the answers.
        progress: A `Progress` of your own; None shows a bar on a terminal, False nothing.

    Returns:
        A `Benchmark`: `cells` with seconds, the ratio to the baseline and its spread; `footprints` with sizes, seconds
        to load and memory.

    Raises:
        UserError: Where a model, an engine, the rows or an option cannot be taken.

    Example:
        >>> benchmark("my-model", batch_sizes=[0])
        Traceback (most recent call last):
        tersely.errors.UserError: The 'batch_sizes' option must hold numbers of at least 1. Got 0.
    """
    arguments = locals()
    options, columns = task_and_columns(arguments)
    if rows is None:
        form = ["header", *(f"{name}_column" for name in Columns.__dataclass_fields__)]
        refuse_idle(arguments, [*form, *TaskOptions.__dataclass_fields__], "--rows")
    named = [models] if isinstance(models, (str, Path)) else list(models)
    counts = [threads] if isinstance(threads, int) else list(threads)
    grid = _Grid(tuple(engines or ()), batch_sizes, lengths, baseline, seconds, shown(progress))
    grid.check(counts, with_rows=rows is not None)
    folders = [str(local_folder(model)) for model in named]
    _check_folders(folders, grid.engines)
    read = None if rows is None else rows_of(rows, header)
    cells: list[Cell] = []
    with opener(options, grid.progress) as open_system:
        pairs = [(folder, engine) for folder in folders for engine in _engines(folder, grid.engines)]
        names = _names(folders)
        for count in counts:
            tokenize_with(count)
            systems = [
                replace(open_system(folder, engine, count), model=names[folder])
                for folder, engine in pairs
                if engine != PIPELINE
            ]
            if read is None:
                cells += _batch_cells(grid, systems, count)
            else:
                pipelines = {names[folder]: folder for folder, engine in pairs if engine == PIPELINE}
                cells += _row_cells(grid, systems, _Texts(read, columns, options, pipelines), count)
        costs = tuple(_loading_cost(system, lengths[0]) for system in systems)
    return Benchmark(cpu(), tuple(cells), costs)


@dataclass(frozen=True)
class _Grid:
    """What is timed, and how long."""

    engines: tuple[str, ...]
    batch_sizes: Sequence[int]
    lengths: Sequence[int]
    baseline: str | None
    seconds: float
    progress: Progress

    def check(self, threads: Sequence[int], *, with_rows: bool) -> None:
        """Refuse numbers and engines that cannot be."""
        check_grid(self.seconds, batch_sizes=self.batch_sizes, lengths=self.lengths, threads=threads)
        for engine in self.engines:
            if engine != PIPELINE:
                split_engine(engine)
            elif not with_rows:
                raise UserError("The engine 'pipeline' takes texts, not batches.", hint="Give rows with --rows.")

    def time(self, contestants: list[Contestant], title: str) -> list[Timing]:
        """Let the contestants take turns."""
        baseline = contestants[0].label
        if self.baseline:
            names = [contestant.label for contestant in contestants]
            fitting = [c.label for c in contestants if self.baseline in (c.label, c.engine, c.model)]
            if not fitting:
                what = f"The baseline '{self.baseline}' is none of these."
                raise UserError(what, hint=nearest(self.baseline, names))
            baseline = fitting[0]
        return alternate(contestants, baseline, seconds=self.seconds, title=title, progress=self.progress)


@dataclass(frozen=True)
class _Texts:
    """The rows to answer, and the folders that pipelines answer them from, by name."""

    rows: Rows
    columns: Columns
    options: TaskOptions
    pipelines: dict[str, str]

    def answered_by(self, system: System, batch_size: int) -> Contestant:
        """A model on an engine of ours."""
        examples = system.predictor.task.read(self.rows, self.columns, labelled=False)
        predictor = system.predictor.with_batch_size(batch_size)
        return Contestant(system.model, system.engine, lambda: predictor.answers(examples))

    def answered_by_pipeline(self, name: str, batch_size: int, threads: int) -> Contestant:
        """The same model in transformers' own pipeline."""
        try:
            from .pipeline import pipeline_work
        except ImportError:
            raise missing_package("transformers", "the engine 'pipeline'", "compress") from None
        folder = Path(self.pipelines[name])
        task = open_folder(folder, self.options).task
        inputs = [_plain(example) for example in task.read(self.rows, self.columns, labelled=False)]
        return Contestant(name, PIPELINE, pipeline_work(folder, task, inputs, batch_size=batch_size, threads=threads))


def _check_folders(folders: Sequence[str], wanted: Sequence[str]) -> None:
    packed = [artifacts.is_artifact(existing(folder, "folder")) for folder in folders]
    for engine in wanted:
        if engine in WITHOUT_ARTIFACTS and all(packed):
            raise UserError(f"An artifact does not run on {engine}.", where=folders[0])
    if len(set(folders)) < len(folders):
        raise UserError("A model is named twice.", hint="Name each once.")


def _engines(folder: str, wanted: Sequence[str]) -> list[str]:
    """The engines to time a model on: an artifact runs on all but torch and its pipeline."""
    packed = artifacts.is_artifact(folder)
    installed = known_engines.installed()
    wanted = wanted or [name for name in ("torch", *known_engines.GRAPH_ENGINES) if name in installed]
    fitting = [name for name in wanted if not (packed and name in WITHOUT_ARTIFACTS)]
    if not fitting:
        raise UserError(f"An artifact runs on none of {', '.join(wanted)}.", where=folder)
    return fitting


def _names(folders: Sequence[str]) -> dict[str, str]:
    """Call models by their folders' names, or by their paths where two folders have one name."""
    names = [Path(folder).resolve().name for folder in folders]
    return {folder: name if names.count(name) == 1 else folder for folder, name in zip(folders, names, strict=True)}


def _batch_cells(grid: _Grid, systems: Sequence[System], threads: int) -> Iterator[Cell]:
    for batch_size in grid.batch_sizes:
        for length in grid.lengths:
            contestants = []
            for system in systems:
                if system.longest is not None and length > system.longest:
                    what = f"holds {length}, but {system.model} has {system.longest} positions."
                    raise wrong_option("lengths", what)
                batch = full_batch(batch_size, length, system.predictor.encoder.vocab_size)
                work = partial(system.predictor.engine.run, batch)
                contestants.append(Contestant(system.model, system.engine, work))
            title = f"batch {batch_size}, length {length}, {threads_text(threads)}"
            yield from (Cell(threads, batch_size, length, timing) for timing in grid.time(contestants, title))


def _row_cells(grid: _Grid, systems: Sequence[System], texts: _Texts, threads: int) -> Iterator[Cell]:
    count = len(texts.rows)
    for batch_size in grid.batch_sizes:
        contestants = [texts.answered_by(system, batch_size) for system in systems]
        contestants += [texts.answered_by_pipeline(name, batch_size, threads) for name in texts.pipelines]
        title = f"{count} rows, batch {batch_size}, {threads_text(threads)}"
        yield from (Cell(threads, batch_size, None, timing, count) for timing in grid.time(contestants, title))


def _plain(example: Any) -> Any:
    """What a pipeline is fed for an example."""
    if hasattr(example, "question"):
        return {"question": example.question, "context": example.context}
    second = getattr(example, "text_pair", None)
    return (example.text, second) if second is not None else example.text


def _loading_cost(system: System, length: int) -> LoadingCost:
    engine, precision = split_engine(system.engine)
    length = min(length, system.longest or length)
    cost = footprint(engine, system.loaded, precision=precision or "fp32", length=length)
    return LoadingCost(system.model, system.engine, system.size / 1e6, **asdict(cost))
