"""The rows of a compress run, divided by what they do: calibrate, judge, choose, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..data.rows import Rows
from ..probe import probe_examples
from ..quantize.samples import Samples
from ..strategy import Plan
from ..tasks import Columns, Feature
from .make import is_moving
from .options import CompressOptions
from .rows import RowPlan, asked_rows, calibration_order, sample_sets
from .source import Source


@dataclass(frozen=True)
class Data:
    """Rows as the user gave them; None: not given."""

    train: Rows | None = None
    evaluation: Rows | None = None
    test: Rows | None = None
    columns: Columns = field(default_factory=Columns)


@dataclass(frozen=True)
class DividedRows:
    """Examples by what they do. `scoring` are labelled if `labelled`; else they only show how far answers move."""

    samples: Samples | None
    judging: Sequence[Any] = field(repr=False)
    scoring: Sequence[Any] = field(repr=False)
    labelled: bool
    chosen_on: str
    test: Sequence[Any] | None = field(repr=False)
    counts: dict[str, int]
    notes: tuple[str, ...]

    def judging_features(self, source: Source) -> list[Feature]:
        """Features of the rows that judge what is learnt and which layers harm."""
        return source.task.features(self.judging or self.scoring, source.encoder)


def divide_rows(data: Data, source: Source, options: CompressOptions, plans: Sequence[Plan]) -> DividedRows:
    """Read all rows, whose mistakes are told before any work, and divide them by the rules of `quantize.rows`."""
    task, columns = source.task, data.columns
    evaluation = task.read(data.evaluation, columns, labelled=True) if data.evaluation is not None else None
    test = task.read(data.test, columns, labelled=True) if data.test is not None else None
    calibrates = any(plan.quantizer == "ptq" for plan in plans)
    plan = calibration_order(
        len(data.train) if data.train is not None else 0,
        len(evaluation or ()),
        seed=options.seed,
        asked=asked_rows(options) if calibrates else 0,
    )
    calibration, judging = _drawn(data, source, evaluation, plan)
    notes = list(plan.notes if calibrates else ())
    samples = None
    if calibrates:
        sets, more = sample_sets(options, len(plan.calibration))
        notes += more
        samples = _samples(source, calibration, judging, options, sets)
    scoring: Sequence[Any]
    if evaluation is not None:
        kept = plan.scoring if calibrates else range(len(evaluation))
        scoring = [evaluation[int(i)] for i in kept]
    else:
        scoring = judging or probe_examples(task)
        notes.append(f"There are no eval rows: {len(scoring)} rows show how far answers move, and nothing is scored.")
    counts = {"calibration": len(calibration) if calibrates else 0, "scoring": len(scoring), "test": len(test or ())}
    chosen_on = "eval rows, which also chose" if evaluation is not None else "unlabelled rows"
    return DividedRows(samples, judging, scoring, evaluation is not None, chosen_on, test, counts, tuple(notes))


def _drawn(data: Data, source: Source, evaluation: Sequence[Any] | None, plan: RowPlan) -> tuple[list[Any], list[Any]]:
    """Examples that calibrate, in the order of drawing, and examples that judge."""
    if plan.source == "train" and data.train is not None:
        calibration, judging = (
            source.task.read(data.train.select([int(i) for i in chosen]), data.columns, labelled=False)
            for chosen in (plan.calibration, plan.judging)
        )
        return calibration, judging
    rows = evaluation or ()
    return [rows[int(i)] for i in plan.calibration], [rows[int(i)] for i in plan.judging]


def _samples(
    source: Source, calibration: Sequence[Any], judging: Sequence[Any], options: CompressOptions, sets: Sequence[Any]
) -> Samples:
    """Features of the rows; a set of rows ends where the windows of its last row do."""
    largest = max(one.rows for one in sets)
    asked = asked_rows(options)
    features = source.task.features(calibration[: max(largest, asked or 0)], source.encoder)

    def end(rows: int) -> int:
        return sum(feature.example < rows for feature in features)

    batches = None
    if is_moving(options):
        batches = {one.name: [end(min(row, one.rows)) for row in _ends(one)] for one in sets}
    return Samples(
        features,
        source.task.features(judging, source.encoder),
        {one.name: end(one.rows) for one in sets},
        source.encoder.pad_id,
        batches,
    )


def _ends(one: Any) -> range:
    return range(one.batch_size, one.rows + one.batch_size, one.batch_size)
