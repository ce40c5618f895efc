"""Time every graph of an artifact on every engine here, and remember the fastest of those that answer as recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from pathlib import Path

from .. import artifact as artifacts
from .. import engines
from ..artifact import Artifact, Graph
from ..engines.cpu import Cpu, cpu
from ..engines.engine import Engine
from ..errors import Failure, UserError
from ..progress import SILENT, Progress
from ..runtime import open_encoder
from ..runtime.choose import Pair, Remembered, prepare, remember
from ..tasks import from_json
from .benchmark import Cell, Contestant, alternate, check_grid, full_batch, threads_text
from .check import FILE, read_probe, replay, runnable

BATCH_SIZES = (1, 16)
LENGTH = 128


@dataclass(frozen=True)
class Setup:
    """A graph on an engine in an arithmetic."""

    graph: Graph
    engine: str
    precision: str

    @property
    def spelling(self) -> str:
        """The engine as options spell it."""
        return f"{self.engine}-bf16" if self.precision == "bf16" else self.engine


@dataclass(frozen=True)
class Chosen:
    """The fastest with so many threads, and how many times as fast it is as what `auto` took before."""

    threads: int
    graph: str
    engine: str
    before: str
    gain: float


@dataclass(frozen=True)
class Tuned:
    """What was measured, what was chosen, who was left out (name, reason), and the file that remembers it."""

    cpu: Cpu
    cells: tuple[Cell, ...]
    chosen: tuple[Chosen, ...]
    left_out: Mapping[str, str]
    place: Path


def tune(
    folder: str | Path,
    *,
    threads: Sequence[int] | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    seconds: float = 2.0,
    progress: Progress = SILENT,
) -> Tuned:
    """Take turns, batch by batch; the best geometric mean over the batches is remembered for each number of threads.

    Takes about (threads × batch sizes × contenders × `seconds`). `threads`: one and all cores where None.
    """
    opened = artifacts.read(folder)
    here = cpu()
    counts = sorted({1, here.cores} if threads is None else set(threads))
    check_grid(seconds, threads=counts, batch_sizes=batch_sizes)
    prepare()
    task, vocabulary = from_json(opened.manifest.task), open_encoder(opened).vocab_size
    length = min(LENGTH, task.max_seq_length)
    field, left_out = eligible(opened, contenders(runnable(opened), here.bf16))
    cells: list[Cell] = []
    chosen: dict[int, Chosen] = {}
    for count in counts:
        runners = [_load(opened, contender, count) for contender in field]
        for batch_size in batch_sizes:
            batch = full_batch(batch_size, length, vocabulary)
            competing = [
                Contestant(contender.graph.path, contender.spelling, partial(runner.run, batch))
                for contender, runner in zip(field, runners, strict=True)
            ]
            title = f"tune: batch {batch_size}, length {length}, {threads_text(count)}"
            timings = alternate(competing, competing[0].label, seconds=seconds, title=title, progress=progress)
            cells += [Cell(count, batch_size, length, timing) for timing in timings]
        chosen[count] = fastest(count, cells)
    found = {(contender.graph.path, contender.spelling): contender for contender in field}
    best = {count: found[pick.graph, pick.engine] for count, pick in chosen.items()}
    remembered = {count: Remembered(setup.graph.path, setup.engine, setup.precision) for count, setup in best.items()}
    place = remember(opened.folder, remembered)
    return Tuned(here, tuple(cells), tuple(chosen.values()), left_out, place)


def contenders(offered: Sequence[Pair], bf16: bool) -> list[Setup]:
    """The pairs in their own precision, the untuned choice first, and FP32 graphs in bf16 where the CPU has it."""
    found = [Setup(pair.graph, pair.engine, pair.graph.precision) for pair in offered]
    for pair in offered:
        if bf16 and pair.graph.precision == "fp32" and "bf16" in engines.ENGINES[pair.engine].precisions:
            found.append(Setup(pair.graph, pair.engine, "bf16"))
    return found


def eligible(opened: Artifact, offered: Sequence[Setup]) -> tuple[list[Setup], dict[str, str]]:
    """Those that load and answer as recorded; and why each of the others was left out. Speed excuses no wrong answer.

    An artifact without a probe, or without this graph's logits in it, cannot be judged: all that load may compete.
    """
    probe = read_probe(opened) if FILE in opened.manifest.files else None
    task = from_json(opened.manifest.task)
    fit, left_out = [], {}
    for contender in offered:
        name = f"{contender.graph.path} {contender.spelling}"
        try:
            runner = _load(opened, contender, 1)
        except UserError as error:
            left_out[name] = error.what
            continue
        if probe is not None and replay(probe, task, contender.graph, runner).verdict == "moved":
            left_out[name] = "Its answers are not those recorded."
            continue
        fit.append(contender)
    if not fit:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise Failure(
            f"There is nothing to choose from. {reasons}",
            where=str(opened.folder),
            hint=f"See: tersely check {opened.folder}",
        )
    return fit, left_out


def fastest(threads: int, cells: Sequence[Cell]) -> Chosen:
    """The best geometric mean of ratios over the batches with so many threads; the first cell's is the baseline."""
    logs: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        if cell.threads == threads:
            logs.setdefault((cell.timing.model, cell.timing.engine), []).append(log(cell.timing.ratio))
    means = {name: exp(sum(values) / len(values)) for name, values in logs.items()}
    best, first = max(means, key=lambda name: means[name]), next(iter(means))
    return Chosen(threads, *best, before=" ".join(first), gain=means[best])


def _load(opened: Artifact, setup: Setup, threads: int) -> Engine:
    return engines.load(setup.engine, opened.path(setup.graph.path), threads=threads, precision=setup.precision)
