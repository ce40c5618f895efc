"""The rows of a compress run, divided by what they do: calibrate, judge, choose, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..data.rows import Rows
from ..folder import ModelFolder
from ..probe import probe_examples
from ..quantize.samples import Samples
from ..strategy import Plan
from ..tasks import Columns, Encoder, Feature, Task
from .make import is_moving
from .options import CompressOptions
from .rows import SIZES, Indices, RowPlan, SampleSet, asked_rows, calibration_order, sample_sets
from .source import Source

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
class DividedRows:
    """Examples by what they do. `scoring` are labelled if `labelled`; else they only show how far answers move.

    `more`: samples of more training rows, for when those of `samples` do not do; None where there are none.
    """

    samples: Samples | None
    judging: Sequence[Feature] = field(repr=False)
    scoring: Sequence[Any] = field(repr=False)
    labelled: bool
    chosen_on: str
    test: Sequence[Any] | None = field(repr=False)
    counts: dict[str, int]
    notes: tuple[str, ...]
    more: Samples | None = field(repr=False, default=None)


def divide_rows(
    data: Data, model: ModelFolder | Source, options: CompressOptions, plans: Sequence[Plan]
) -> DividedRows:
    """Read all rows, whose mistakes are told before any work, and divide them by the rules of `compression.rows`.

    Of the model only the task and the tokenizer are used: its weights need not be read yet.
    """
    task, encoder = model.task, model.encoder
    evaluation = task.read(data.evaluation, data.columns, labelled=True) if data.evaluation is not None else None
    test = task.read(data.test, data.columns, labelled=True) if data.test is not None else None
    calibrates = any(plan.quantizer == "ptq" for plan in plans)
    plan = calibration_order(
        len(data.train) if data.train is not None else 0,
        len(evaluation or ()),
        seed=options.seed,
        asked=asked_rows(options) if calibrates else 0,
    )
    draw = _Draw(data, task, encoder, evaluation, plan, is_moving(options))
    judging = draw.examples(plan.judging)
    notes: list[str] = []
    samples = more = None
    rows = 0
    if calibrates:
        sets, cut_short = sample_sets(options, len(plan.calibration))
        notes += [*plan.notes, *cut_short]
        largest = max(one.rows for one in sets)
        rows = min(max(largest, asked_rows(options) or 0), len(plan.calibration))
        samples = draw.samples(sets, rows)
        larger = min(MORE * largest, len(plan.calibration))
        if options.max_drop is not None and larger > rows:
            more = draw.samples([SampleSet(f"{larger}", larger, SIZES[0])], larger)
    elif data.train is not None:
        notes.append("The training rows calibrate nothing: the strategy needs none.")
    if evaluation is not None:
        kept = plan.scoring if calibrates else range(len(evaluation))
        scoring, chosen_on = [evaluation[int(i)] for i in kept], "eval rows, which also chose"
    else:
        scoring, chosen_on = judging or probe_examples(task), "unlabelled rows"
        notes.append(f"There are no eval rows: {len(scoring)} rows show how far answers move, and nothing is scored.")
    return DividedRows(
        samples=samples,
        judging=task.features(judging or scoring, encoder),
        scoring=scoring,
        labelled=evaluation is not None,
        chosen_on=chosen_on,
        test=test,
        counts={"calibration": rows, "scoring": len(scoring), "test": len(test or ())},
        notes=tuple(notes),
        more=more,
    )


@dataclass(frozen=True)
class _Draw:
    """Rows by their indices in a plan, as examples and features."""

    data: Data
    task: Task
    encoder: Encoder
    evaluation: Sequence[Any] | None
    plan: RowPlan
    moving: bool

    def examples(self, chosen: Indices) -> list[Any]:
        """Training rows are read without their labels, which calibrate nothing."""
        if self.plan.source == "train" and self.data.train is not None:
            rows = self.data.train.select([int(i) for i in chosen])
            return self.task.read(rows, self.data.columns, labelled=False) if len(rows) else []
        rows_read = self.evaluation or ()
        return [rows_read[int(i)] for i in chosen]

    def samples(self, sets: Sequence[SampleSet], rows: int) -> Samples:
        """Features of the first `rows`; a set ends where the windows of its last row do."""
        features = self.task.features(self.examples(self.plan.calibration[:rows]), self.encoder)

        def end(count: int) -> int:
            return sum(feature.example < count for feature in features)

        batches = None
        if self.moving:
            batches = {one.name: [end(min(row, one.rows)) for row in _ends(one)] for one in sets}
        return Samples(
            features,
            self.task.features(self.examples(self.plan.judging), self.encoder),
            {one.name: end(one.rows) for one in sets},
            self.encoder.pad_id,
            batches,
        )


def _ends(one: SampleSet) -> range:
    return range(one.batch_size, one.rows + one.batch_size, one.batch_size)
