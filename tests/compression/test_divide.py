"""Which rows of a run do what: those that calibrate are not those that score, and where they are it is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from learnable import rows, single
from tersely.compression.divide import Data, DividedRows, Encoded, divide_rows
from tersely.data import from_dataset
from tersely.data.rows import Rows
from tersely.errors import UserError
from tersely.options.compress import CompressOptions
from tersely.tasks import Columns, QuestionAnswering, SequenceClassification

Divide = Callable[..., Any]
Spelled = Callable[[Any], list[set[bytes]]]
TASK = SequenceClassification(("bad", "good"), max_seq_length=32)


class Seen:
    """Rows divided, and as the tokenizer of the tests spells them."""

    def __init__(self, divided: DividedRows, encoded: Encoded) -> None:
        self.divided, self.encoded = divided, encoded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoded if name in ("samples", "judging", "more") else self.divided, name)


@pytest.fixture
def divide(encoder_of: Callable[[str], Any]) -> Divide:
    def run(task: Any = TASK, **keywords: Any) -> Seen:
        data = Data(
            keywords.pop("train", None), keywords.pop("evaluation", None), keywords.pop("test", None), Columns()
        )
        options = CompressOptions(**{"strategy": "ptq", **keywords})
        divided = divide_rows(data, task, options, options.plans())
        return Seen(divided, divided.encode(task, encoder_of("bert")))

    return run


def numbered(count: int, seed: int = 0) -> Rows:
    """Rows that differ from each other."""
    return from_dataset([{**row, "text": f"{row['text']} {i}"} for i, row in enumerate(rows(single, count, seed))])


@pytest.fixture
def spelled(encoder_of: Callable[[str], Any]) -> Spelled:
    """Rows that calibrate, judge and score, as the ids that the model sees."""

    def ids(divided: Seen) -> list[set[bytes]]:
        assert divided.samples is not None
        scoring = TASK.features(divided.scoring, encoder_of("bert"))
        return [{f.input_ids.tobytes() for f in some} for some in (divided.samples.features, divided.judging, scoring)]

    return ids


def texts(examples: Any) -> set[str]:
    return {example.text for example in examples}


def test_training_rows_calibrate_and_all_eval_rows_score(divide: Divide, spelled: Spelled) -> None:
    train, evaluation, test = numbered(1000), numbered(90, 1), numbered(50, 2)
    divided = divide(train=train, evaluation=evaluation, test=test)
    assert divided.counts == {
        "train": 0, "unlabelled": 0, "calibration": 128, "search": 0, "scoring": 90, "test": 50,
    }  # fmt: skip
    assert divided.samples is not None
    assert len(divided.samples.features) == 128
    assert divided.samples.sets == {"128": 128}
    assert texts(divided.scoring) == {row["text"] for row in evaluation}
    assert texts(divided.test) == {row["text"] for row in test}
    assert divided.labelled
    assert divided.chosen_on == "eval rows, which also chose"
    calibrating, judging, _ = spelled(divided)
    assert len(judging) == 128
    assert not calibrating & judging
    assert divided.notes == ()
    assert divided.more is None


@pytest.mark.parametrize("count", [1000, 300])
def test_without_training_rows_eval_rows_calibrate_and_are_not_scored(
    count: int, divide: Divide, spelled: Spelled
) -> None:
    divided = divide(evaluation=numbered(count), calibration_rows=64)
    calibrating, judging, scoring = spelled(divided)
    assert len(calibrating) == 64
    assert not calibrating & scoring
    assert not calibrating & judging
    assert len(scoring) == len(divided.scoring) == divided.counts["scoring"] >= count / 2
    assert len(divided.notes) == 1
    assert divided.notes[0].startswith("There are no training rows: ")


def test_rows_that_must_do_both_are_told(divide: Divide) -> None:
    divided = divide(evaluation=numbered(60))
    assert len(divided.scoring) == 60
    assert "also report the score" in " ".join(divided.notes)
    assert "128 asks for 128 rows; there are 60" in " ".join(divided.notes)


@pytest.mark.parametrize(("scored", "expected"), [(True, 60), (False, 30)])
def test_few_training_rows_are_enough_to_prune_by(scored: bool, expected: int) -> None:
    """None of them is held out to judge what is not there; without eval rows half shows how far answers move."""
    options = CompressOptions(strategy="prune", target_speedup=2)
    divided = divide_rows(Data(numbered(60), numbered(20, 1) if scored else None), TASK, options, options.plans())
    assert len(texts(divided.statistics)) == expected
    assert not scored or len(divided.scoring) == 20
    assert scored or not texts(divided.statistics) & texts(divided.scoring)


def test_a_search_and_those_that_judge_it_share_no_eval_rows() -> None:
    options = CompressOptions(strategy="auto")
    divided = divide_rows(Data(numbered(300), numbered(500, 1)), TASK, options, options.plans())
    search, judge = texts(divided.search), texts(divided.scoring)
    assert (len(search), len(judge), search & judge) == (250, 250, set())
    assert (divided.counts["search"], divided.counts["scoring"]) == (250, 250)
    assert divided.searched.scoring == divided.search
    assert len(divided.places) == 250
    few = divide_rows(Data(numbered(300), numbered(399, 1)), TASK, options, options.plans())
    assert (len(few.search), len(few.scoring)) == (0, 399)
    assert "fewer than 400" in " ".join(few.notes)
    options = CompressOptions(strategy="prune", target_speedup=2)  # nothing is looked for
    assert not divide_rows(Data(numbered(300), numbered(500, 1)), TASK, options, options.plans()).search


def test_lone_dynamic_needs_no_rows(divide: Divide) -> None:
    divided = divide(strategy="dynamic")
    assert divided.samples is None
    assert not divided.labelled
    assert len(divided.scoring) == divided.counts["scoring"] > 20
    assert divided.counts["calibration"] == 0
    assert "nothing is scored" in divided.notes[-1]


def test_training_rows_without_eval_rows_show_how_far_answers_move(divide: Divide, spelled: Spelled) -> None:
    divided = divide(train=numbered(400))
    calibrating, _, scoring = spelled(divided)
    assert not divided.labelled
    assert len(divided.scoring) == 128
    assert not calibrating & scoring
    dynamic = divide(train=numbered(400), strategy="dynamic")
    assert len(dynamic.scoring) == 128
    assert dynamic.notes[0].startswith("The training rows calibrate nothing")


def test_same_seed_draws_the_same_rows_and_another_others(divide: Divide, spelled: Spelled) -> None:
    drawn = (divide(train=numbered(600), evaluation=numbered(9), seed=seed) for seed in (1, 1, 2))
    first, second, third = (spelled(divided)[0] for divided in drawn)
    assert first == second
    assert first != third


def test_sets_nest_and_end_with_their_rows(divide: Divide) -> None:
    divided = divide(train=numbered(500), evaluation=numbered(9), batch_size_list="4 8", batch_num_list="1 3")
    assert divided.samples is not None
    assert divided.samples.sets == {"4_1": 4, "4_3": 12, "8_1": 8, "8_3": 24}
    assert len(divided.samples.features) == 24
    assert divided.samples.batches is None


def test_windows_of_a_row_stay_together(divide: Divide) -> None:
    task = QuestionAnswering(max_seq_length=24, doc_stride=4)
    context = " ".join(["paris is the capital of france"] * 6)
    questions = [{"question": "what", "context": context, "answers": [{"text": "paris", "answer_start": 0}]}] * 30
    divided = divide(task, train=from_dataset(questions), evaluation=from_dataset(questions[:5]), calibration_rows=10)
    assert divided.samples is not None
    windows = len(divided.samples.features)
    assert windows > 10
    assert windows % 10 == 0
    assert divided.samples.sets == {"10": windows}
    assert divided.counts["calibration"] == 10


def test_moving_averages_know_their_batches(divide: Divide) -> None:
    divided = divide(
        train=numbered(500), evaluation=numbered(9), batch_size_list="4", batch_num_list="3",
        activation_quantize_type="moving_average_abs_max",
    )  # fmt: skip
    assert divided.samples is not None
    assert divided.samples.batches == {"4_3": [4, 8, 12]}


def test_more_rows_are_at_hand_only_for_a_largest_drop(divide: Divide) -> None:
    some: dict[str, Any] = {"train": numbered(500), "evaluation": numbered(150), "calibration_rows": 32}
    more = divide(**some, max_drop=0.1).more
    assert more is not None
    assert more.sets == {"128": 128}
    assert divide(**some).more is None
    assert divide(evaluation=numbered(600), max_drop=0.1, calibration_rows=32).more is None
    few = {**some, "max_drop": 0.1, "train": numbered(90)}
    assert divide(**few).more is None  # all others judge
    some_left = divide(**few | {"train": numbered(200)})
    assert list(some_left.more.sets.values()) == [200 - len(some_left.judging)] == [72]


def test_adaround_sees_at_least_128_rows(divide: Divide) -> None:
    divided = divide(train=numbered(500), evaluation=numbered(9), calibration_rows=16, round_type="adaround")
    assert divided.samples is not None
    assert (len(divided.samples.features), divided.samples.sets) == (128, {"16": 16})
    assert divided.counts["calibration"] == 128


@pytest.mark.parametrize("which", ["train", "evaluation", "test"])
def test_mistakes_in_rows_are_told(which: str, divide: Divide) -> None:
    good = numbered(20)
    bad = from_dataset([{"text": 4, "label": "good"}] * 20)
    with pytest.raises(UserError, match=r"dataset:\d+: Column 'text' must hold text"):
        divide(**{"train": good, "evaluation": good, "test": good, which: bad})


def test_eval_rows_without_labels_are_refused(divide: Divide, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="label"):
        divide(evaluation=from_dataset([{"text": "fine"}] * 20))
