"""Which rows calibrate, judge and score: nothing twice where it can be avoided, and said where not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tersely.compression.draw import SampleSet, calibration_order, sample_sets, screening_rows, wanted_rows
from tersely.options.compress import CompressOptions

MOVING = "moving_average_abs_max"


def sets(options: CompressOptions, available: int = 10_000) -> list[tuple[str, int]]:
    return [(sample.name, sample.rows) for sample in sample_sets(options, available)[0]]


def test_without_lists_there_is_one_set() -> None:
    assert sample_sets(CompressOptions(), 1000) == ((SampleSet("128", 128, 4),), ())
    assert sets(CompressOptions(calibration_rows=7)) == [("7", 7)]


def test_fewer_rows_than_asked_are_all_taken_with_a_note() -> None:
    found, notes = sample_sets(CompressOptions(), 50)
    assert (found[0].name, found[0].rows) == ("128", 50)
    assert notes == ("128 asks for 128 rows; there are 50, and all of them calibrate.",)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True),
    nums=st.lists(st.none() | st.integers(1, 40), min_size=1, max_size=4, unique=True),
    available=st.integers(1, 600),
)
def test_grid_is_the_product_with_equal_row_counts_once(
    sizes: list[int], nums: list[int | None], available: int
) -> None:
    options = CompressOptions(batch_size_list=tuple(sizes), batch_num_list=tuple(nums))
    expected: dict[int, str] = {}
    for size in sizes:
        for num in nums:
            expected.setdefault(available if num is None else min(size * num, available), f"{size}_{num}")
    found, notes = sample_sets(options, available)
    assert [(sample.rows, sample.name) for sample in found] == list(expected.items())
    assert sum("one candidate" in note for note in notes) == len(sizes) * len(nums) - len(expected)
    most = wanted_rows(options)
    assert most == (None if None in nums else max(sizes) * max(num for num in nums if num is not None))


def test_one_list_alone_takes_the_default_for_the_other() -> None:
    assert sets(CompressOptions(batch_size_list=(4, 8, 16))) == [("4_1", 4), ("8_1", 8), ("16_1", 16)]
    assert sets(CompressOptions(batch_num_list=(1, 10, None))) == [("4_1", 4), ("4_10", 40), ("4_None", 10_000)]


def test_equal_row_counts_in_other_batches_differ_for_a_moving_average() -> None:
    grid = {"batch_size_list": (4, 8), "batch_num_list": (1, 2)}
    assert [name for name, _ in sets(CompressOptions(**grid))] == ["4_1", "4_2", "8_2"]  # type: ignore[arg-type]
    options = CompressOptions(activation_quantize_type=MOVING, **grid)  # type: ignore[arg-type]
    assert [name for name, _ in sets(options)] == ["4_1", "4_2", "8_1", "8_2"]
    assert [sample.batch_size for sample in sample_sets(options, 99)[0]] == [4, 4, 8, 8]


def test_learned_rounding_and_biases_ask_for_128_rows() -> None:
    small = {"batch_size_list": (4,), "batch_num_list": (1,)}
    assert wanted_rows(CompressOptions(**small)) == 4  # type: ignore[arg-type]
    assert wanted_rows(CompressOptions(round_type="adaround", **small)) == 128  # type: ignore[arg-type]
    assert wanted_rows(CompressOptions(bias_correction=True, **small)) == 128  # type: ignore[arg-type]
    assert wanted_rows(CompressOptions(calibration_rows=512, round_type="adaround")) == 512


@settings(max_examples=200)
@given(
    train=st.integers(0, 2000),
    evaluation=st.integers(0, 2000),
    asked=st.none() | st.integers(1, 1000),
    judging=st.sampled_from([0, 16, 128]),
    seed=st.integers(0, 5),
)
def test_rows_do_two_things_only_where_a_note_says_so(
    train: int, evaluation: int, asked: int | None, judging: int, seed: int
) -> None:
    rows = calibration_order(train, evaluation, seed=seed, wanted=asked, judging=judging)
    count = train or evaluation
    wanted = count if asked is None else min(asked, count)
    used = rows.calibration[:wanted]
    notes = " ".join(rows.notes)
    assert rows.source == ("train" if train else "eval")
    assert len(set(used)) == wanted
    for part, limit in ((rows.calibration, count), (rows.judging, count), (rows.scoring, evaluation)):
        assert len(set(part)) == len(part)
        assert set(part) <= set(range(limit))
    assert len(rows.judging) <= judging
    if set(rows.calibration) & set(rows.judging):
        assert "judged on rows that calibrate" in notes
        assert count - wanted < min(8, judging)
    assert (np.diff(rows.scoring) > 0).all()
    if train:
        assert len(rows.scoring) == evaluation
        return
    assert len(rows.scoring) == evaluation or len(rows.scoring) >= max(100, evaluation / 2)
    if set(rows.calibration) & set(rows.scoring):
        assert "calibrate and also report the score" in notes
        assert evaluation - wanted < max(100, evaluation / 2)
    elif set(rows.judging) & set(rows.scoring):
        assert "scored also judge" in notes


@pytest.mark.parametrize(("train", "evaluation"), [(3000, 500), (0, 3000), (0, 200)])
def test_sets_are_nested_whatever_is_asked(train: int, evaluation: int) -> None:
    largest = calibration_order(train, evaluation, seed=1, wanted=190).calibration
    for count in (1, 4, 32, 128):
        assert (calibration_order(train, evaluation, seed=1, wanted=count).calibration[:count] == largest[:count]).all()


def test_seed_draws_and_draws_the_same_again() -> None:
    first, again, other = (calibration_order(500, 100, seed=seed).calibration for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert not (np.sort(first[:128]) == np.arange(128)).all()


def test_every_row_is_drawn_equally_often() -> None:
    drawn = np.concatenate(
        [calibration_order(40, 0, seed=seed, wanted=10, judging=0).calibration[:10] for seed in range(800)]
    )
    times = np.bincount(drawn, minlength=40)
    assert abs(times - 200).max() < 5 * np.sqrt(800 * 0.25 * 0.75)


def test_training_rows_leave_all_eval_rows_to_the_score() -> None:
    rows = calibration_order(1000, 408, seed=42)
    assert (rows.source, len(rows.judging), len(rows.scoring), rows.notes) == ("train", 128, 408, ())
    assert len(rows.calibration) == 872  # all others: a search may take more


def test_eval_rows_leave_the_score_where_enough_stay() -> None:
    assert len(calibration_order(0, 1000, seed=42).scoring) == 744
    mrpc = calibration_order(0, 408, seed=42)
    assert (len(mrpc.calibration), len(mrpc.scoring)) == (128, 280)
    assert mrpc.notes == (
        "There are no training rows: 128 of 408 eval rows calibrate and are not scored; "
        "128 of those scored also judge what is learned.",
    )
    few = calibration_order(0, 200, seed=42)
    assert (len(few.scoring), len(few.judging)) == (200, 72)
    assert few.notes == ("There are no training rows: 128 of 200 eval rows calibrate and also report the score.",)


def test_all_rows_asked_for_judge_too() -> None:
    rows = calibration_order(300, 50, seed=42, wanted=None)
    assert len(rows.calibration) == 300
    assert rows.notes == ("What is learned is judged on rows that calibrate, as there are no others.",)


def test_no_rows_give_empty_parts_without_notes() -> None:
    rows = calibration_order(0, 0, seed=42)
    assert (len(rows.calibration), len(rows.judging), len(rows.scoring), rows.notes) == (0, 0, 0, ())


def test_screening_rows_are_256_of_those_scored_in_order() -> None:
    scoring = np.arange(1000) * 3
    drawn = screening_rows(scoring, seed=42)
    assert len(drawn) == 256
    assert set(drawn) <= set(scoring)
    assert (np.diff(drawn) > 0).all()
    assert (screening_rows(scoring, 42) == drawn).all()
    assert (screening_rows(scoring[:200], 42) == scoring[:200]).all()
