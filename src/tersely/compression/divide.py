"""The rows of a compress run, divided by what they do: train, calibrate, judge, choose, report."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Rows
from ..deploy.probe import probe_examples
from ..options.compress import CompressOptions
from ..quantize.samples import Samples
from ..strategy import MOVING, PRUNE, Plan
from ..tasks import Columns, Encoder, Feature, Task

Indices = NDArray[np.int64]

MORE = 4
"""Times as many rows calibrate when the drop is above `--max_drop`."""

LEARNING = 128
"""AdaRound and bias correction see at least so many rows where there are as many."""

JUDGING = 128
"""Rows held out, on which AdaRound, bias correction and skip lists are judged."""

FEWEST_JUDGING = 8
"""With fewer rows left over, the calibration rows judge too."""

FEWEST_SCORING = 100
"""Eval rows are taken out of scoring only where so many stay, and half of all."""

STATISTICS, FROM_EVAL = 8192, 1024
"""Rows that pruning without training may draw from; so many of the eval rows where there are no training rows."""

FEWEST_SPLIT = 400
"""With so many eval rows or more half of them search for speed-ups, and the others judge."""

SCREENING = 256
"""Rows on which many candidates are screened."""

SIZES, NUMS = (4,), (1,)
"""What PaddleNLP's documents tell users to give, where only the other of the two lists was given."""


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

    Reading many rows takes long: what is wrong with options, output folder and model can be told before.
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
class SampleSet:
    """The first `rows` of the calibration rows under the name that candidates bear.

    `batch_size` matters to `moving_average_abs_max` alone, whose average goes over batches.
    """

    name: str
    rows: int
    batch_size: int


@dataclass(frozen=True)
class Encoded:
    """Rows as one tokenizer spells them: samples to calibrate on, features to judge on.

    `more`: samples of more training rows, for when those of `samples` do not do; None where there are none.
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
    """Where each of `scoring` stands, file and line; none where they are no rows of the user's."""
    test: Sequence[Any] | None = field(repr=False)
    counts: dict[str, int]
    notes: tuple[str, ...]
    train: Sequence[Any] = field(repr=False, default=())
    unlabelled: Sequence[Any] = field(repr=False, default=())
    """Rows beside the training rows, of which no labels were read: for what learns from a teacher, and for counts."""
    search: Sequence[Any] = field(repr=False, default=())
    """Where speed-ups are looked for: the eval rows that this goes by; none: those of `scoring`."""
    statistics: Sequence[Any] = field(repr=False, default=())
    """What pruning without training looks at; labels are not read."""
    calibration: Sequence[Any] = field(repr=False, default=())
    judging: Sequence[Any] = field(repr=False, default=())
    sets: Sequence[SampleSet] = ()
    more_sets: Sequence[SampleSet] = ()
    moving: bool = False

    @property
    def searched(self) -> DividedRows:
        """The same with the rows that a search goes by; those that judge are left to the end."""
        return replace(self, scoring=self.search, places=()) if self.search else self

    def encode(self, task: Task, encoder: Encoder) -> Encoded:
        """Spell the rows as a model's own tokenizer does: one whose vocabulary was cut has another."""
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
                ends = {one.name: range(one.batch_size, one.rows + one.batch_size, one.batch_size) for one in sets}
                batches = {one.name: [end(min(row, one.rows)) for row in ends[one.name]] for one in sets}
            bounds = {one.name: end(one.rows) for one in sets}
            return Samples(features[: end(rows)], judging, bounds, encoder.pad_id, batches)

        return Encoded(
            samples(self.sets, self.counts["calibration"]),
            judging or task.features(self.scoring, encoder),
            samples(self.more_sets, len(self.calibration)),
        )


@dataclass(frozen=True)
class RowPlan:
    """Indices of rows by what they do. `source` ("train" or "eval") is where `calibration` and `judging` point.

    `calibration` [pool] is in the order of drawing, so that its first n are the rows of every set of n. `scoring` are
    eval rows in their order. `notes` say in plain words which rows do two things.
    """

    source: str
    calibration: Indices
    judging: Indices
    scoring: Indices
    notes: tuple[str, ...]


def divide_rows(data: Data, task: Task, options: CompressOptions, plans: Sequence[Plan]) -> DividedRows:
    """Read all rows, whose mistakes are told before any work, and divide them."""
    evaluation = task.read(data.evaluation, data.columns, labelled=True) if data.evaluation is not None else None
    test = task.read(data.test, data.columns, labelled=True) if data.test is not None else None
    calibrates = any(plan.calibrates for plan in plans)
    prunes = any(PRUNE in plan.steps for plan in plans)
    train = _training(data, task, options, plans)
    unlabelled = _unlabelled(data, task, evaluation or ())
    train_rows = len(data.train if data.train is not None else unlabelled)
    asked = asked_rows(options) if calibrates else 0
    if prunes and not train_rows and asked is not None:
        asked = max(asked, min(FROM_EVAL, len(evaluation or ()) // 2))
    judging = JUDGING
    if prunes and not calibrates:  # nothing is judged but, without eval rows, how far answers move
        judging = min(JUDGING, train_rows // 2) if evaluation is None else 0
    plan = calibration_order(train_rows, len(evaluation or ()), seed=options.seed, asked=asked, judging=judging)

    def examples(chosen: Indices) -> list[Any]:
        """Training rows are read without their labels, which calibrate nothing."""
        if plan.source == "train" and data.train is not None:
            rows = data.train.select([int(i) for i in chosen])
            return task.read(rows, data.columns, labelled=False) if len(rows) else []
        return [(unlabelled if plan.source == "train" else evaluation or ())[int(i)] for i in chosen]

    def statistics() -> list[Any]:
        """As many of both kinds as there are of them, drawn by seed; without training rows the others are these.

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
    calibrating = min(max([asked or 0, *(one.rows for one in sets)]), len(plan.calibration))
    drawn = max([calibrating, *(one.rows for one in more)])
    if data.train is not None and not calibrates and not train and not prunes:
        notes.append("The training rows calibrate nothing: the strategy needs none.")
    if evaluation is not None:
        kept = plan.scoring if calibrates or prunes else range(len(evaluation))
        scoring, chosen_on = [evaluation[int(i)] for i in kept], "eval rows, which also chose"
        places = [data.evaluation.where(int(i)) for i in kept] if data.evaluation is not None else []
    else:
        scoring, chosen_on = held_out or probe_examples(task), "unlabelled rows"
        source = data.train if data.train is not None else data.unlabelled
        places = [source.where(int(i)) for i in plan.judging] if held_out and source is not None else []
        notes.append(f"There are no eval rows: {len(scoring)} rows show how far answers move, and nothing is scored.")
    search: list[Any] = []
    if options.searches and evaluation is not None:
        if len(scoring) >= FEWEST_SPLIT:
            half = np.random.default_rng(options.seed).permutation(len(scoring)) < len(scoring) // 2
            search = [one for one, searches in zip(scoring, half, strict=True) if searches]
            scoring = [one for one, searches in zip(scoring, half, strict=True) if not searches]
            places = [one for one, searches in zip(places, half, strict=True) if not searches]
            notes.append(f"{len(search)} of the eval rows search, {len(scoring)} others judge what was found.")
        else:
            notes.append(f"The eval rows are fewer than {FEWEST_SPLIT}: those that search also judge what was found.")
    return DividedRows(
        scoring=scoring,
        search=search,
        labelled=evaluation is not None,
        chosen_on=chosen_on,
        places=places,
        test=test,
        counts={
            "train": len(train),
            "unlabelled": len(unlabelled),
            "calibration": calibrating,
            "search": len(search),
            "scoring": len(scoring),
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


def _sets(options: CompressOptions, plan: RowPlan) -> tuple[tuple[SampleSet, ...], tuple[SampleSet, ...], list[str]]:
    """The sets of calibration rows, one with more rows if a drop may be too large and there are any, and notes."""
    sets, cut_short = sample_sets(options, len(plan.calibration))
    largest = max(one.rows for one in sets)
    larger = min(MORE * largest, len(plan.calibration))
    more = options.max_drop is not None and larger > max(largest, asked_rows(options) or 0)
    return sets, (SampleSet(f"{larger}", larger, SIZES[0]),) if more else (), [*plan.notes, *cut_short]


def _training(data: Data, task: Task, options: CompressOptions, plans: Sequence[Plan]) -> list[Any]:
    """All training rows where a plan needs them; with their labels if it learns from these."""
    if data.train is None or not any(plan.reads_train_rows for plan in plans):
        return []
    labelled = any(options.learns_from_labels(plan) for plan in plans)
    return task.read(data.train, data.columns, labelled=labelled)


def _unlabelled(data: Data, task: Task, others: Sequence[Any]) -> list[Any]:
    """All rows whose labels mean nothing, refused if they have not the texts of the training rows, or of `others`."""
    rows = data.unlabelled
    if rows is None:
        return []
    if data.train is not None:
        others = task.read(data.train.select([0]), data.columns, labelled=False)
    # A file of texts alone has no names for its columns.
    found = task.read(rows, data.columns.of_texts() if len(rows.columns) > 1 else Columns(), labelled=False)
    for name in (one.name for one in task.facts.inputs if one.optional):
        lacks, lacked = (getattr(one, name, None) is None for one in (found[0], (others or found)[0]))
        if lacks != lacked:
            kind = ("lack", "have") if lacks else ("have", "lack")
            what = f"The unlabelled rows {kind[0]} a '{name}', which the labelled ones {kind[1]}."
            raise rows.lacks(what, hint=f"Both need the same texts. Name the column with --{name}_column.")
    return found


def sample_sets(options: CompressOptions, available: int) -> tuple[tuple[SampleSet, ...], tuple[str, ...]]:
    """The sets of rows that the options ask for, and notes: on sets cut short and on sets that are one.

    >>> sets, notes = sample_sets(CompressOptions(batch_size_list=(4, 8), batch_num_list=(1, 2, None)), 1000)
    >>> [(one.name, one.rows) for one in sets]
    [('4_1', 4), ('4_2', 8), ('4_None', 1000), ('8_2', 16)]
    >>> notes
    ('8_1 has the same rows as 4_2: one candidate.', '8_None has the same rows as 4_None: one candidate.')
    """
    found: dict[tuple[int, int | None], SampleSet] = {}
    notes = []
    by_batch = options.activation_quantize_type == MOVING
    for name, batch_size, asked in _grid(options):
        rows = available if asked is None else min(asked, available)
        if asked is not None and asked > rows:
            notes.append(f"{name} asks for {asked} rows; there are {rows}, and all of them calibrate.")
        one = SampleSet(name, rows, batch_size)
        same = found.setdefault((rows, batch_size if by_batch else None), one)
        if same is not one:
            notes.append(f"{name} has the same rows as {same.name}: one candidate.")
    return tuple(found.values()), tuple(notes)


def asked_rows(options: CompressOptions) -> int | None:
    """How many calibration rows the options ask for at most; None: all there are.

    >>> asked_rows(CompressOptions(batch_size_list=(4, 8))), asked_rows(CompressOptions(batch_num_list=(None,)))
    (8, None)
    """
    asked = [rows for _, _, rows in _grid(options)]
    if options.round_type == "adaround" or options.bias_correction:
        asked.append(LEARNING)
    counts = [rows for rows in asked if rows is not None]
    return max(counts) if len(counts) == len(asked) else None


def calibration_order(
    train_rows: int, eval_rows: int, *, seed: int, asked: int | None = 128, judging: int = JUDGING
) -> RowPlan:
    """Draw calibration rows by seed: from training rows where there are any, else from eval rows.

    `asked`: see `asked_rows`. `judging`: rows to hold out; 0 where nothing is judged. Eval rows that calibrate or
    judge leave the scoring where enough stay (`FEWEST_SCORING`, and half); else they do both, and a note says so.

    >>> rows = calibration_order(0, 1000, seed=42, asked=128)
    >>> len(rows.calibration), len(rows.judging), len(rows.scoring)
    (128, 128, 744)
    """
    source, count = ("train", train_rows) if train_rows else ("eval", eval_rows)
    drawn = np.random.default_rng(seed).permutation(count)
    wanted = count if asked is None else min(asked, count)
    pool, judges, judged_on_pool = _hold_out(drawn, wanted, judging)
    scoring, notes = np.arange(eval_rows), []
    if source == "eval" and count:
        pool = pool[:wanted]  # the rest reports the score
        scoring, note = _score_apart(eval_rows, pool, judges)
        notes.append(note)
    if judged_on_pool and count:
        others = f"{count - wanted} others" if count > wanted else "no others"
        notes.append(f"What is learned is judged on rows that calibrate, as there are {others}.")
    return RowPlan(source, pool, judges, scoring, tuple(notes))


def screening_rows(scoring: Indices, seed: int) -> Indices:
    """The rows on which many candidates are screened, in their order: all where there are no more than 256."""
    drawn = np.random.default_rng(seed).permutation(len(scoring))[:SCREENING]
    return scoring[np.sort(drawn)]


def _grid(options: CompressOptions) -> list[tuple[str, int, int | None]]:
    """(name, batch size, rows or None for all) of each set, in the order of the lists."""
    if options.batch_size_list is None and options.batch_num_list is None:
        return [(f"{options.calibration_rows}", SIZES[0], options.calibration_rows)]
    return [
        (f"{size}_{num}", size, None if num is None else size * num)
        for size in options.batch_size_list or SIZES
        for num in options.batch_num_list or NUMS
    ]


def _hold_out(drawn: Indices, wanted: int, judging: int) -> tuple[Indices, Indices, bool]:
    """Rows that may calibrate, rows that judge, and whether these had to be the same."""
    held = min(judging, len(drawn) - wanted)
    if held < min(judging, FEWEST_JUDGING):
        return drawn, drawn[: min(judging, wanted)], True
    return np.concatenate([drawn[:wanted], drawn[wanted + held :]]), drawn[wanted : wanted + held], False


def _score_apart(eval_rows: int, pool: Indices, judges: Indices) -> tuple[Indices, str]:
    """The eval rows that report the score where some of them must calibrate, and what to tell the user."""
    start = "There are no training rows:"
    everything = np.arange(eval_rows)
    enough = max(FEWEST_SCORING, eval_rows / 2)
    both = np.union1d(pool, judges)
    if eval_rows - len(both) >= enough:
        rest = np.setdiff1d(everything, both)
        return rest, f"{start} {len(both)} of {eval_rows} eval rows calibrate or judge, and are not scored."
    if eval_rows - len(pool) >= enough:
        rest = np.setdiff1d(everything, pool)
        also = f"{len(judges)} of those scored also judge what is learned"
        return rest, f"{start} {len(pool)} of {eval_rows} eval rows calibrate and are not scored; {also}."
    return everything, f"{start} {len(pool)} of {eval_rows} eval rows calibrate and also report the score."
