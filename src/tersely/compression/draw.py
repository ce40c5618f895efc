"""Which rows calibrate, judge and screen: drawn by seed, as many as the options ask for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..options.compress import CompressOptions
from ..strategy import MOVING

Indices = NDArray[np.int64]

LEARNING = 128
"""AdaRound and bias correction see at least so many rows where there are as many."""

JUDGING = 128
"""Rows held out, on which AdaRound, bias correction and skip lists are judged."""

FEWEST_JUDGING = 8
"""With fewer rows left over, the calibration rows judge too."""

FEWEST_SCORING = 100
"""Eval rows are taken out of scoring only where so many stay, and half of all."""

SCREENING = 256
"""Rows on which many candidates are screened."""

SIZES, NUMS = (4,), (1,)
"""Values that PaddleNLP's documents recommend, for the list of the two that was not passed."""


@dataclass(frozen=True)
class SampleSet:
    """The first `rows` of the calibration rows under the name that candidates bear.

    `batch_size` matters to `moving_average_abs_max` alone, whose average goes over batches.
    """

    name: str
    rows: int
    batch_size: int


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


def sample_sets(options: CompressOptions, available: int) -> tuple[tuple[SampleSet, ...], tuple[str, ...]]:
    """The sets of rows that the options ask for, and notes: on sets that were cut short and on equal sets.

    >>> sets, notes = sample_sets(CompressOptions(batch_size_list=(4, 8), batch_num_list=(1, 2, None)), 1000)
    >>> [(sample_set.name, sample_set.rows) for sample_set in sets]
    [('4_1', 4), ('4_2', 8), ('4_None', 1000), ('8_2', 16)]
    >>> notes
    ('8_1 has the same rows as 4_2: one candidate.', '8_None has the same rows as 4_None: one candidate.')
    """
    found: dict[tuple[int, int | None], SampleSet] = {}
    notes = []
    by_batch = options.activation_quantize_type == MOVING
    for name, batch_size, wanted in _grid(options):
        rows = available if wanted is None else min(wanted, available)
        if wanted is not None and wanted > rows:
            notes.append(f"{name} asks for {wanted} rows; there are {rows}, and all of them calibrate.")
        sample_set = SampleSet(name, rows, batch_size)
        same = found.setdefault((rows, batch_size if by_batch else None), sample_set)
        if same is not sample_set:
            notes.append(f"{name} has the same rows as {same.name}: one candidate.")
    return tuple(found.values()), tuple(notes)


def wanted_rows(options: CompressOptions) -> int | None:
    """How many calibration rows the options ask for at most; None: all there are.

    >>> wanted_rows(CompressOptions(batch_size_list=(4, 8))), wanted_rows(CompressOptions(batch_num_list=(None,)))
    (8, None)
    """
    wanted = [rows for _, _, rows in _grid(options)]
    if options.round_type == "adaround" or options.bias_correction:
        wanted.append(LEARNING)
    counts = [rows for rows in wanted if rows is not None]
    return max(counts) if len(counts) == len(wanted) else None


def calibration_order(
    train_rows: int, eval_rows: int, *, seed: int, wanted: int | None = 128, judging: int = JUDGING
) -> RowPlan:
    """Draw calibration rows by seed: from training rows where there are any, else from eval rows.

    `wanted`: see `wanted_rows`. `judging`: rows to hold out; 0 where nothing is judged. Eval rows that calibrate or
    judge leave the scoring where enough stay (`FEWEST_SCORING`, and half); else they do both, and a note says so.

    >>> rows = calibration_order(0, 1000, seed=42, wanted=128)
    >>> len(rows.calibration), len(rows.judging), len(rows.scoring)
    (128, 128, 744)
    """
    source, count = ("train", train_rows) if train_rows else ("eval", eval_rows)
    drawn = np.random.default_rng(seed).permutation(count)
    calibrating = count if wanted is None else min(wanted, count)
    pool, judging_indices, judged_on_pool = _hold_out(drawn, calibrating, judging)
    scoring, notes = np.arange(eval_rows), []
    if source == "eval" and count:
        pool = pool[:calibrating]  # the rest reports the score
        scoring, note = _score_apart(eval_rows, pool, judging_indices)
        notes.append(note)
    if judged_on_pool and count:
        others = f"{count - calibrating} others" if count > calibrating else "no others"
        notes.append(f"What is learned is judged on rows that calibrate, as there are {others}.")
    return RowPlan(source, pool, judging_indices, scoring, tuple(notes))


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


def _hold_out(drawn: Indices, calibrating: int, judging: int) -> tuple[Indices, Indices, bool]:
    """Rows that may calibrate, rows that judge, and whether the same rows have to do both."""
    held = min(judging, len(drawn) - calibrating)
    if held < min(judging, FEWEST_JUDGING):
        return drawn, drawn[: min(judging, calibrating)], True
    end = calibrating + held
    return np.concatenate([drawn[:calibrating], drawn[end:]]), drawn[calibrating:end], False


def _score_apart(eval_rows: int, pool: Indices, judging_indices: Indices) -> tuple[Indices, str]:
    """The eval rows that report the score where some of them must calibrate, and a note for the user."""
    start = "There are no training rows:"
    everything = np.arange(eval_rows)
    enough = max(FEWEST_SCORING, eval_rows / 2)
    both = np.union1d(pool, judging_indices)
    if eval_rows - len(both) >= enough:
        rest = np.setdiff1d(everything, both)
        return rest, f"{start} {len(both)} of {eval_rows} eval rows calibrate or judge, and are not scored."
    if eval_rows - len(pool) >= enough:
        rest = np.setdiff1d(everything, pool)
        also = f"{len(judging_indices)} of those scored also judge what is learned"
        return rest, f"{start} {len(pool)} of {eval_rows} eval rows calibrate and are not scored; {also}."
    return everything, f"{start} {len(pool)} of {eval_rows} eval rows calibrate and also report the score."
