"""The rows of a compress run, divided by what they do: train, calibrate, judge, choose, report."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..data.rows import Rows
from ..deploy.probe import probe_examples
from ..options.compress import CompressOptions
from ..quantize.samples import Samples
from ..strategy import Plan
from ..tasks import Columns, Encoder, Feature, Task
from .make import is_moving
from .rows import SIZES, Indices, RowPlan, SampleSet, asked_rows, calibration_order, sample_sets

MORE = 4
"""Times as many rows calibrate when the drop is above `--max_drop`."""


@dataclass(frozen=True)
class Data:
    """Rows as the user gave them; None: not given."""

    train: Rows | None = None
    evaluation: Rows | None = None
    test: Rows | None = None
    columns: Columns = field(default_factory=Columns)


@dataclass(frozen=True)
class UnreadData:
    """Rows that are still to be read, each by its own function; None: not given.

    Reading many rows takes long: what is wrong with options, output folder and model can be told before.
    """

    train: Callable[[], Rows] | None = None
    evaluation: Callable[[], Rows] | None = None
    test: Callable[[], Rows] | None = None
    columns: Columns = field(default_factory=Columns)

    def read(self) -> Data:
        """Read them all."""
        train, evaluation, test = (read and read() for read in (self.train, self.evaluation, self.test))
        return Data(train, evaluation, test, self.columns)


@dataclass(frozen=True)
class Encoded:
    """Rows as one tokenizer spells them: samples to calibrate on, features to judge on.

    `more`: samples of more training rows, for when those of `samples` do not do; None where there are none.
    """

    samples: Samples | None
    judging: Sequence[Feature] = field(repr=False)
    more: Samples | None = field(repr=False, default=None)


@dataclass(frozen=True)
class DividedRows:
    """Examples by what they do. `scoring` are labelled if `labelled`; else they only show how far answers move.

    `train`: the training rows where a plan trains or counts tokens, with labels if it needs them; else none are read.
    `calibration` are in the order of drawing, with the `sets` that are their first so many; `more_sets` likewise.
    """

    scoring: Sequence[Any] = field(repr=False)
    labelled: bool
    chosen_on: str
    places: Sequence[str] = field(repr=False, kw_only=True, default=())
    """Where each of `scoring` stands, file and line; none where they are no rows of the user's."""
    test: Sequence[Any] | None = field(repr=False)
    counts: dict[str, int]
    notes: tuple[str, ...]
    train: Sequence[Any] = field(repr=False, default=())
    calibration: Sequence[Any] = field(repr=False, default=())
    judging: Sequence[Any] = field(repr=False, default=())
    sets: Sequence[SampleSet] = ()
    more_sets: Sequence[SampleSet] = ()
    moving: bool = False

    def encode(self, task: Task, encoder: Encoder) -> Encoded:
        """Spell the rows as a model's own tokenizer does: one whose vocabulary was cut has another."""
        judging = task.features(self.judging, encoder) if self.judging else []
        features = task.features(self.calibration, encoder) if self.calibration else []

        of_rows = [feature.example for feature in features]  # in the order of the rows

        def samples(sets: Sequence[SampleSet], rows: int) -> Samples:
            """A set ends where the windows of its last row do."""

            def end(count: int) -> int:
                return bisect_left(of_rows, count)

            batches = None
            if self.moving:
                batches = {one.name: [end(min(row, one.rows)) for row in _ends(one)] for one in sets}
            bounds = {one.name: end(one.rows) for one in sets}
            return Samples(features[: end(rows)], judging, bounds, encoder.pad_id, batches)

        return Encoded(
            samples(self.sets, self.counts["calibration"]) if self.sets else None,
            judging or task.features(self.scoring, encoder),
            samples(self.more_sets, len(self.calibration)) if self.more_sets else None,
        )


class HasTask(Protocol):
    """A model folder or source: of it only the task is used."""

    @property
    def task(self) -> Task:
        """How rows are read."""


def divide_rows(data: Data, model: HasTask, options: CompressOptions, plans: Sequence[Plan]) -> DividedRows:
    """Read all rows, whose mistakes are told before any work, and divide them by the rules of `compression.rows`.

    Of the model only the task is used: its weights need not be read yet.
    """
    task = model.task
    evaluation = task.read(data.evaluation, data.columns, labelled=True) if data.evaluation is not None else None
    test = task.read(data.test, data.columns, labelled=True) if data.test is not None else None
    calibrates = any(plan.calibrates for plan in plans)
    plan = calibration_order(
        len(data.train) if data.train is not None else 0,
        len(evaluation or ()),
        seed=options.seed,
        asked=asked_rows(options) if calibrates else 0,
    )
    draw = _Draw(data, task, evaluation, plan)
    judging = draw.examples(plan.judging)
    notes: list[str] = []
    sets: tuple[SampleSet, ...] = ()
    more: tuple[SampleSet, ...] = ()
    rows = drawn = 0
    if calibrates:
        sets, cut_short = sample_sets(options, len(plan.calibration))
        notes += [*plan.notes, *cut_short]
        largest = max(one.rows for one in sets)
        rows = drawn = min(max(largest, asked_rows(options) or 0), len(plan.calibration))
        larger = min(MORE * largest, len(plan.calibration))
        if options.max_drop is not None and larger > rows:
            more, drawn = (SampleSet(f"{larger}", larger, SIZES[0]),), larger
    train = _training(data, task, options, plans)
    if data.train is not None and not calibrates and not train:
        notes.append("The training rows calibrate nothing: the strategy needs none.")
    if evaluation is not None:
        kept = plan.scoring if calibrates else range(len(evaluation))
        scoring, chosen_on = [evaluation[int(i)] for i in kept], "eval rows, which also chose"
        places = [data.evaluation.where(int(i)) for i in kept] if data.evaluation is not None else []
    else:
        scoring, chosen_on = judging or probe_examples(task), "unlabelled rows"
        places = [data.train.where(int(i)) for i in plan.judging] if judging and data.train is not None else []
        notes.append(f"There are no eval rows: {len(scoring)} rows show how far answers move, and nothing is scored.")
    return DividedRows(
        scoring=scoring,
        labelled=evaluation is not None,
        chosen_on=chosen_on,
        places=places,
        test=test,
        counts={"train": len(train), "calibration": rows, "scoring": len(scoring), "test": len(test or ())},
        notes=tuple(notes),
        train=train,
        calibration=draw.examples(plan.calibration[:drawn]),
        judging=judging,
        sets=sets,
        more_sets=more,
        moving=is_moving(options),
    )


def _training(data: Data, task: Task, options: CompressOptions, plans: Sequence[Plan]) -> list[Any]:
    """All training rows where a plan needs them; with their labels if it learns from these."""
    if data.train is None or not any(plan.reads_train_rows for plan in plans):
        return []
    labelled = any(options.learns_from_labels(step) for plan in plans for step in plan.trained)
    return task.read(data.train, data.columns, labelled=labelled)


@dataclass(frozen=True)
class _Draw:
    """Rows by their indices in a plan, as examples."""

    data: Data
    task: Task
    evaluation: Sequence[Any] | None
    plan: RowPlan

    def examples(self, chosen: Indices) -> list[Any]:
        """Training rows are read without their labels, which calibrate nothing."""
        if self.plan.source == "train" and self.data.train is not None:
            rows = self.data.train.select([int(i) for i in chosen])
            return self.task.read(rows, self.data.columns, labelled=False) if len(rows) else []
        rows_read = self.evaluation or ()
        return [rows_read[int(i)] for i in chosen]


def _ends(one: SampleSet) -> range:
    return range(one.batch_size, one.rows + one.batch_size, one.batch_size)
