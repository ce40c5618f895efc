"""The rows of a compress run, divided by what they do: train, calibrate, judge, choose, report."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..data.rows import Rows
from ..deploy.probe import probe_examples
from ..options.compress import CompressOptions
from ..quantize.samples import Samples
from ..strategy import MOVING, PRUNE, Plan
from ..tasks import Columns, Encoder, Feature, Task
from .draw import JUDGING, SIZES, Indices, RowPlan, SampleSet, calibration_order, sample_sets, wanted_rows

MORE = 4
"""Times as many rows calibrate when the drop is above `--max_drop`."""

STATISTICS, FROM_EVAL = 8192, 1024
"""Rows that pruning without training may draw from; so many of the eval rows where there are no training rows."""

UNLABELLED = "unlabelled rows"

FEWEST_SPLIT = 400
"""With so many eval rows or more half of them search for speed-ups, and the others judge."""


@dataclass(frozen=True)
class Data:
    """Rows as the user gave them; None: not given."""

    train: Rows | None = None
    evaluation: Rows | None = None
    test: Rows | None = None
    columns: Columns = field(default_factory=Columns)
    unlabelled: Rows | None = None
    """Rows whose labels, if they have any, mean nothing."""


@dataclass(frozen=True)
class UnreadData:
    """Rows that are still to be read, each by its own function; None: not given.

    Reading many rows takes long: errors in options, output folder and model are reported before.
    """

    train: Callable[[], Rows] | None = None
    evaluation: Callable[[], Rows] | None = None
    test: Callable[[], Rows] | None = None
    columns: Columns = field(default_factory=Columns)
    unlabelled: Callable[[], Rows] | None = None

    def read(self) -> Data:
        """Read them all."""
        readers = (self.train, self.evaluation, self.test, self.unlabelled)
        train, evaluation, test, unlabelled = (read and read() for read in readers)
        return Data(train, evaluation, test, self.columns, unlabelled)


@dataclass(frozen=True)
class Encoded:
    """Rows as one tokenizer encodes them: samples to calibrate on, features to judge on.

    `more`: samples of more training rows, for when those of `samples` are not enough; None where there are none.
    """

    samples: Samples | None = None
    judging: Sequence[Feature] = field(repr=False, default=())
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
    """Where each of `scoring` stands, file and line; empty where the rows are made up."""
    test: Sequence[Any] | None = field(repr=False)
    counts: dict[str, int]
    notes: tuple[str, ...]
    train: Sequence[Any] = field(repr=False, default=())
    unlabelled: Sequence[Any] = field(repr=False, default=())
    """Rows beside the training rows, of which no labels were read: for what learns from a teacher, and for counts."""
    search: Sequence[Any] = field(repr=False, default=())
    """The eval rows on which a search for speed-ups scores candidates; empty: those of `scoring`."""
    statistics: Sequence[Any] = field(repr=False, default=())
    """What pruning without training looks at; labels are not read."""
    calibration: Sequence[Any] = field(repr=False, default=())
    judging: Sequence[Any] = field(repr=False, default=())
    sets: Sequence[SampleSet] = ()
    more_sets: Sequence[SampleSet] = ()
    moving: bool = False

    @property
    def searched(self) -> DividedRows:
        """The same with `search` as the rows to score; those that judge are left to the end."""
        return replace(self, scoring=self.search, places=()) if self.search else self

    def encode(self, task: Task, encoder: Encoder) -> Encoded:
        """Encode the rows with a model's own tokenizer: a model whose vocabulary was cut has another one."""
        judging = task.features(self.judging, encoder) if self.judging else []
        features = task.features(self.calibration, encoder) if self.calibration else []
        of_rows = [feature.example for feature in features]  # in the order of the rows

        def end(count: int) -> int:
            """Where the windows of the first so many rows end."""
            return bisect_left(of_rows, count)

        def samples(sets: Sequence[SampleSet], rows: int) -> Samples | None:
            if not sets:
                return None
            batches = None
            if self.moving:
                ends = {
                    sample_set.name: range(
                        sample_set.batch_size, sample_set.rows + sample_set.batch_size, sample_set.batch_size
                    )
                    for sample_set in sets
                }
                batches = {
                    sample_set.name: [end(min(row, sample_set.rows)) for row in ends[sample_set.name]]
                    for sample_set in sets
                }
            bounds = {sample_set.name: end(sample_set.rows) for sample_set in sets}
            return Samples(features[: end(rows)], judging, bounds, encoder.pad_id, batches)

        return Encoded(
            samples(self.sets, self.counts["calibration"]),
            judging or task.features(self.scoring, encoder),
            samples(self.more_sets, len(self.calibration)),
        )


def divide_rows(data: Data, task: Task, options: CompressOptions, plans: Sequence[Plan]) -> DividedRows:
    """Read all rows, so that errors in them are reported before any work, and divide them."""
    evaluation = task.read(data.evaluation, data.columns, labelled=True) if data.evaluation is not None else None
    test = task.read(data.test, data.columns, labelled=True) if data.test is not None else None
    calibrates = any(plan.calibrates for plan in plans)
    prunes = any(PRUNE in plan.steps for plan in plans)
    train = _training(data, task, options, plans)
    unlabelled = _unlabelled(data, task, evaluation or ())
    train_rows = len(data.train if data.train is not None else unlabelled)
    wanted = wanted_rows(options) if calibrates else 0
    if prunes and not train_rows and wanted is not None:
        wanted = max(wanted, min(FROM_EVAL, len(evaluation or ()) // 2))
    judging = JUDGING
    if prunes and not calibrates:  # nothing is judged but, without eval rows, how far answers move
        judging = min(JUDGING, train_rows // 2) if evaluation is None else 0
    plan = calibration_order(train_rows, len(evaluation or ()), seed=options.seed, wanted=wanted, judging=judging)

    def examples(chosen: Indices) -> list[Any]:
        """Training rows are read without their labels, which calibrate nothing."""
        if plan.source == "train" and data.train is not None:
            rows = data.train.select([int(i) for i in chosen])
            return task.read(rows, data.columns, labelled=False) if len(rows) else []
        return [(unlabelled if plan.source == "train" else evaluation or ())[int(i)] for i in chosen]

    def statistics() -> list[Any]:
        """Rows of the pool and unlabelled rows, drawn together by seed; the pool may be the unlabelled rows already.

        Rows that judge calibrations may be among them, but not those that show how far answers move.
        """
        pool = plan.calibration if evaluation is None else np.concatenate([plan.calibration, plan.judging])
        others = unlabelled if data.train is not None else []
        if not others:
            return examples(pool[:STATISTICS])
        drawn = np.random.default_rng(options.seed).permutation(len(pool) + len(others))[:STATISTICS]
        return [*examples(pool[drawn[drawn < len(pool)]]), *(others[i] for i in drawn[drawn >= len(pool)] - len(pool))]

    held_out = examples(plan.judging)
    sets, more, notes = _sets(options, plan) if calibrates else ((), (), [])
    calibrating = min(max([wanted or 0, *(sample_set.rows for sample_set in sets)]), len(plan.calibration))
    drawn = max([calibrating, *(sample_set.rows for sample_set in more)])
    if data.train is not None and not calibrates and not train and not prunes:
        notes.append("The training rows calibrate nothing: the strategy needs none.")
    scored = _scored(data, task, evaluation, held_out, plan, all_score=not (calibrates or prunes))
    if options.searches and evaluation is not None:
        scored = _apart(scored, options.seed)
    notes += scored.notes
    return DividedRows(
        scoring=scored.examples,
        search=scored.search,
        labelled=evaluation is not None,
        chosen_on=UNLABELLED if evaluation is None else "eval rows, which also chose",
        places=scored.places,
        test=test,
        counts={
            "train": len(train),
            "unlabelled": len(unlabelled),
            "calibration": calibrating,
            "search": len(scored.search),
            "scoring": len(scored.examples),
            "test": len(test or ()),
        },
        notes=tuple(notes),
        train=train,
        unlabelled=unlabelled,
        statistics=statistics() if prunes else (),
        calibration=examples(plan.calibration[:drawn]),
        judging=held_out,
        sets=sets,
        more_sets=more,
        moving=options.activation_quantize_type == MOVING,
    )


@dataclass(frozen=True)
class _Scored:
    """Rows to score, where they stand, notes for the user, and the rows that a search scores instead."""

    examples: Sequence[Any]
    places: Sequence[str]
    notes: tuple[str, ...] = ()
    search: Sequence[Any] = ()


def _scored(
    data: Data,
    task: Task,
    evaluation: Sequence[Any] | None,
    held_out: Sequence[Any],
    plan: RowPlan,
    *,
    all_score: bool,
) -> _Scored:
    """The eval rows that nothing else uses; without any the rows that judge, or made-up ones."""
    if evaluation is not None and data.evaluation is not None:
        kept = [int(i) for i in (range(len(evaluation)) if all_score else plan.scoring)]
        return _Scored([evaluation[i] for i in kept], [data.evaluation.where(i) for i in kept])
    examples, rows = held_out or probe_examples(task), data.train if data.train is not None else data.unlabelled
    places = [rows.where(int(i)) for i in plan.judging] if held_out and rows is not None else []
    note = f"There are no eval rows: {len(examples)} rows show how far answers move, and nothing is scored."
    return _Scored(examples, places, (note,))


def _apart(scored: _Scored, seed: int) -> _Scored:
    """Half of the rows for a search, by seed, where there are many; the others judge what it found."""
    count = len(scored.examples)
    if count < FEWEST_SPLIT:
        note = f"The eval rows are fewer than {FEWEST_SPLIT}: those that search also judge what was found."
        return replace(scored, notes=(note,))
    searches = np.random.default_rng(seed).permutation(count) < count // 2
    search, judge = np.flatnonzero(searches).tolist(), np.flatnonzero(~searches).tolist()
    note = f"{len(search)} of the eval rows search, {len(judge)} others judge what was found."
    examples, places = ([part[i] for i in judge] for part in (scored.examples, scored.places))
    return _Scored(examples, places, (note,), [scored.examples[i] for i in search])


def _sets(options: CompressOptions, plan: RowPlan) -> tuple[tuple[SampleSet, ...], tuple[SampleSet, ...], list[str]]:
    """The sets of calibration rows, one with more rows if a drop may be too large and there are any, and notes."""
    sets, cut_short = sample_sets(options, len(plan.calibration))
    largest = max(sample_set.rows for sample_set in sets)
    larger = min(MORE * largest, len(plan.calibration))
    more = options.max_drop is not None and larger > max(largest, wanted_rows(options) or 0)
    return sets, (SampleSet(f"{larger}", larger, SIZES[0]),) if more else (), [*plan.notes, *cut_short]


def _training(data: Data, task: Task, options: CompressOptions, plans: Sequence[Plan]) -> list[Any]:
    """All training rows where a plan needs them; with their labels if it learns from these."""
    if data.train is None or not any(plan.reads_train_rows for plan in plans):
        return []
    labelled = any(options.learns_from_labels(plan) for plan in plans)
    return task.read(data.train, data.columns, labelled=labelled)


def _unlabelled(data: Data, task: Task, others: Sequence[Any]) -> list[Any]:
    """All unlabelled rows, refused if they lack a text that the training rows, or `others`, have, or have one more."""
    rows = data.unlabelled
    if rows is None:
        return []
    if data.train is not None:
        others = task.read(data.train.select([0]), data.columns, labelled=False)
    # A file of texts alone has no names for its columns.
    found = task.read(rows, data.columns.of_texts() if len(rows.columns) > 1 else Columns(), labelled=False)
    for name in (text_input.name for text_input in task.facts.inputs if text_input.optional):
        lacks, lacked = (getattr(example, name, None) is None for example in (found[0], (others or found)[0]))
        if lacks != lacked:
            kind = ("lack", "have") if lacks else ("have", "lack")
            what = f"The unlabelled rows {kind[0]} a '{name}', which the labelled ones {kind[1]}."
            raise rows.lacks(what, hint=f"Both need the same texts. Name the column with --{name}_column.")
    return found
