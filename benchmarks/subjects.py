"""The fine-tuned models that benchmarks measure: where each one's data lie, its options, how it becomes an artifact."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from scores import SETTINGS, tersely

from tersely import data
from tersely.artifact import Artifact, is_artifact, read
from tersely.compression.draw import calibration_order
from tersely.engines.cpu import cpu
from tersely.graphs.first_position import keep_first_position
from tersely.graphs.plain import unfold
from tersely.quantize.samples import Samples
from tersely.runtime import Predictor
from tersely.tasks import Columns, Task
from tersely.tasks.options import TaskOptions

TRAIN = {"mrpc": "train.tsv", "tnews": "train.json", "msra_ner": "train.txt", "cmrc2018": "train.json"}
SEED = 42
LABEL_LOSS = {"msra_ner": 1.0, "cmrc2018": 1.0}
"""Where a model has not learnt all that its rows hold, these teach too; elsewhere the FP32 model alone."""


@dataclass(frozen=True)
class Subject:
    """A model folder, its rows and the options with which it was trained and is scored."""

    name: str
    model: Path
    train: Path
    dev: Path
    flags: tuple[str, ...]

    @classmethod
    def find(cls, name: str, models: Path, data_sets: Path) -> Subject:
        """One of the four by name."""
        dev, flags = SETTINGS[name]
        return cls(name, models / name, data_sets / name / TRAIN[name], data_sets / dev, tuple(flags))

    @property
    def settings(self) -> dict[str, Any]:
        """The flags as Python takes them."""
        names, values = self.flags[::2], self.flags[1::2]
        return {name.removeprefix("--"): int(value) for name, value in zip(names, values, strict=True)}

    def task_options(self) -> TaskOptions:
        """The flags as the library takes them."""
        return TaskOptions(**self.settings)

    def export(self, out: Path) -> Artifact:
        """`tersely export`: the FP32 artifact; one that is there already is used."""
        if not is_artifact(out):
            tersely("export", str(self.model), "--output_dir", str(out), *self.flags)
        return read(out)

    def compress(self, out: Path, *flags: str) -> dict[str, Any]:
        """`tersely compress`: what result.json holds; a run that is there already is used."""
        if (out / "result.json").is_file():
            found: dict[str, Any] = json.loads((out / "result.json").read_text(encoding="utf-8"))
            return found
        rows = ("--train_file", str(self.train), "--eval_file", str(self.dev))
        return tersely("compress", str(self.model), "--output_dir", str(out), *rows, *flags, *self.flags)

    def examples(self, predictor: Predictor, rows: int | None = None) -> list[Any]:
        """Labelled dev rows, all or the first few."""
        return predictor.task.read(data.read(self.dev), Columns(), labelled=True)[:rows]

    def samples(self, predictor: Predictor, rows: int = 128) -> Samples:
        """The training rows that `tersely compress` draws for so many; never dev rows."""
        train = data.read(self.train)
        plan = calibration_order(len(train), 0, seed=SEED, wanted=rows)
        task, encoder = predictor.task, predictor.encoder
        calibrate, judge = (
            task.features(task.read(train.select(int(i) for i in chosen), Columns(), labelled=False), encoder)
            for chosen in (plan.calibration[:rows], plan.judging)
        )
        return Samples(calibrate, judge, {str(rows): len(calibrate)}, encoder.pad_id)


CHOOSING = 500
"""Training rows that choose the step of a width."""


@dataclass(frozen=True)
class Split:
    """Labelled examples: what trains, what chooses among steps (drawn from the training rows), what reports (dev)."""

    train: list[Any]
    choose: list[Any]
    report: list[Any]

    @classmethod
    def of(cls, subject: Subject, task: Task, rows: int | None = None) -> Split:
        """Drawn by seed; `rows`: of those that choose or report the first so many."""
        found = task.read(data.read(subject.train), Columns(), labelled=True)
        order = [int(i) for i in np.random.default_rng(SEED).permutation(len(found))]
        report = task.read(data.read(subject.dev), Columns(), labelled=True)
        train, choose = ([found[i] for i in part] for part in (order[CHOOSING:], order[:CHOOSING]))
        return cls(train, choose[:rows], report[:rows])


def plain_graph(path: Path, *, first_position: bool) -> Any:
    """An exported graph as the quantizers see it, with or without the lossless pass over its last layer."""
    proto = unfold(onnx.load(path))
    if first_position:
        keep_first_position(proto)
    return proto


@contextmanager
def work_folder(kept: Path | None) -> Iterator[Path]:
    """A folder that is kept, so that a second run finds the artifacts of the first, or one for this run alone."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
    else:
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch)


def machine() -> str:
    """What a figure was measured on."""
    here = cpu()
    return f"CPU class {here.cpu_class} ({here.name}, {here.cores} cores)"


@dataclass
class Log:
    """Lines that are printed and, if there is a file, written as they come: what is stopped leaves what it found."""

    out: Path | None
    lines: list[str] = field(default_factory=list)

    def __call__(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)
        if self.out:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text("\n".join(self.lines) + "\n", encoding="utf-8")

    def head(self, *columns: str) -> None:
        """Begin a table."""
        self.row(*columns)
        self("|---" * len(columns) + "|")

    def row(self, *cells: str) -> None:
        """One row of a table."""
        self(f"| {' | '.join(cells)} |")
