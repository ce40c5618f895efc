"""One label, several labels or a number for a text or a pair."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models import FAMILIES, SENTENCES
from tersely.data.rows import Rows
from tersely.errors import UserError
from tersely.tasks import Columns, SequenceClassification, from_json, to_json
from tersely.tasks.sequence_classification import MULTI, REGRESSION

SINGLE_TASK = SequenceClassification(("bad", "fair", "good"), max_seq_length=24)
MULTI_TASK = SequenceClassification(("a", "b", "c"), MULTI, metric="micro_f1")
NUMBER_TASK = SequenceClassification(("LABEL_0",), REGRESSION, metric="pearson")


def rows(*records):
    return Rows.collect("reviews.tsv", enumerate(records, start=2))


def read(task, *records, labelled=True, **columns):
    return task.read(rows(*records), Columns(**columns), labelled)


@pytest.mark.parametrize(
    ("text", "pair", "label"),
    [
        ("text", "text_pair", "label"), ("sentence1", "sentence2", "label"), ("premise", "hypothesis", "gold_label"),
        ("#1 String", "#2 String", "Quality"), ("question1", "question2", "is_duplicate"), ("sentence", None, "label"),
    ],
)  # fmt: skip
def test_usual_columns_are_found(text, pair, label):
    record = {text: "one", label: "fair"} | ({pair: "two"} if pair else {})
    (example,) = read(SINGLE_TASK, record)
    assert (example.text, example.text_pair, example.gold) == ("one", "two" if pair else None, 1)


def test_named_columns_win_over_usual_ones():
    record = {"text": "no", "body": "yes", "note": "second", "label": "bad", "verdict": "good"}
    (example,) = read(SINGLE_TASK, record, text="body", text_pair="note", label="verdict")
    assert (example.text, example.text_pair, example.gold) == ("yes", "second", 2)


@pytest.mark.parametrize(
    ("record", "columns", "message"),
    [
        ({"body": "x", "label": "bad"}, {}, r"no text column. Columns here: body, label. Name it with text_column"),
        ({"text": "x", "stars": "bad"}, {}, r"no label column. Columns here: text, stars. Name it with label_column"),
        ({"text": "x", "label": "bad"}, {"text": "txt"}, r"no column 'txt' .*Columns here: text, label.*mean 'text'"),
        ({"text": "x", "label": "bad"}, {"label": "y"}, r"no column 'y' \(option 'label_column'\)"),
    ],
)
def test_missing_column_says_which_exist(record, columns, message):
    with pytest.raises(UserError, match=message) as caught:
        read(SINGLE_TASK, record, **columns)
    assert caught.value.where == "reviews.tsv"


@pytest.mark.parametrize(
    ("task", "record", "message"),
    [
        (SINGLE_TASK, {"text": "x", "label": "awful"}, "'awful' is not one of the model's 3: bad, fair, good"),
        (SINGLE_TASK, {"text": "x", "label": None}, "must be one value. Got nothing"),
        (SINGLE_TASK, {"text": "x", "label": ["bad"]}, "must be one value"),
        (SINGLE_TASK, {"text": None, "label": "bad"}, "Column 'text' must hold text. Got nothing"),
        (SINGLE_TASK, {"text": 7, "label": "bad"}, "Column 'text' must hold text. Got int"),
        (SINGLE_TASK, {"text": "x", "text_pair": None, "label": "bad"}, "Column 'text_pair' must hold text"),
        (NUMBER_TASK, {"text": "x", "label": "much"}, "must be a number. Got 'much'"),
        (NUMBER_TASK, {"text": "x", "label": None}, "must be a number. Got None"),
        (NUMBER_TASK, {"text": "x", "label": "nan"}, "must be a finite number"),
        (NUMBER_TASK, {"text": "x", "label": float("inf")}, "must be a finite number"),
        (MULTI_TASK, {"text": "x", "label": 5}, "must be a list or a text with commas. Got 5"),
        (MULTI_TASK, {"text": "x", "label": None}, "must be a list or a text with commas"),
        (MULTI_TASK, {"text": "x", "label": "a, z"}, "The label 'z' is not one of the model's 3"),
    ],
)
def test_bad_row_is_named_by_file_and_line(task, record, message):
    good = {"text": "fine", "text_pair": "x", "label": {"regression": "1"}.get(task.problem, task.labels[0])}
    record = {**({} if "text_pair" in record else {"text_pair": "y"}), **record}
    with pytest.raises(UserError, match=message) as caught:
        read(task, good, record)
    assert caught.value.where == "reviews.tsv:3"


def test_labels_are_not_read_where_nothing_is_scored():
    examples = read(SINGLE_TASK, {"text": "x"}, {"text": "y", "label": "unheard of"}, labelled=False)
    assert [example.gold for example in examples] == [None, None]


def test_number_means_the_position_where_labels_have_no_names():
    task = SequenceClassification(("LABEL_0", "LABEL_1"))
    examples = read(task, {"text": "x", "label": 1}, {"text": "x", "label": "0"}, {"text": "x", "label": "LABEL_1"})
    assert [example.gold for example in examples] == [1, 0, 1]


def test_number_is_a_name_where_labels_are_numbers():
    task = SequenceClassification(("-1", "0", "1"))
    assert [e.gold for e in read(task, {"text": "x", "label": -1}, {"text": "x", "label": "1"})] == [0, 2]


@pytest.mark.parametrize(
    ("value", "gold"),
    [
        (["a", "c"], (1, 0, 1)),
        ("a, c", (1, 0, 1)),
        ("", (0, 0, 0)),
        ([], (0, 0, 0)),
        ("b", (0, 1, 0)),
        ("a,a", (1, 0, 0)),
    ],
)
def test_several_labels_are_read_from_lists_and_commas(value, gold):
    assert read(MULTI_TASK, {"text": "x", "labels": value})[0].gold == gold


@pytest.mark.parametrize("family", FAMILIES)
def test_features_equal_transformers_for_mixed_singles_and_pairs(encoder_of, transformers_tokenizer, family):
    inputs = [SENTENCES[1], (SENTENCES[0], SENTENCES[4]), "", {"text": "one", "text_pair": "two"}, ("", SENTENCES[6])]
    features = SINGLE_TASK.features(SINGLE_TASK.examples(inputs), encoder_of(family))
    texts = [(i, None) if isinstance(i, str) else tuple(i.values()) if isinstance(i, dict) else i for i in inputs]
    for index, (feature, (text, pair)) in enumerate(zip(features, texts, strict=True)):
        expected = transformers_tokenizer(family)(
            text, pair, truncation=True, max_length=24, return_token_type_ids=True
        )
        assert feature.example == index
        assert feature.input_ids.tolist() == expected["input_ids"]
        assert feature.token_type_ids.tolist() == expected["token_type_ids"]


@pytest.mark.parametrize(
    "item", [7, None, (), ("a", "b", "c"), ("a", 3), {"txt": "a"}, {"text": None}, {"text": "a", "text_pair": 3}]
)
def test_bad_input_is_named_by_its_number(item):
    with pytest.raises(UserError, match=f"Input 1 must be a text.*Got {type(item).__name__}"):
        SINGLE_TASK.examples(["fine", item])


FLOATS = st.integers(-5000, 5000).map(lambda number: number / 100)


@given(st.lists(FLOATS, min_size=3, max_size=3))
def test_decode_equals_torch_softmax_and_sigmoid(values):
    logits = np.array(values, np.float32)
    (answer,) = SINGLE_TASK.decode([], [], [logits])
    chances = torch.softmax(torch.tensor(logits, dtype=torch.float64), -1)
    assert answer.value == int(torch.tensor(logits).argmax())
    assert answer.label == SINGLE_TASK.labels[answer.value]
    assert list(answer.scores.values()) == pytest.approx(chances.tolist(), abs=1e-9)
    assert answer.score == answer.scores[answer.label]

    (several,) = MULTI_TASK.decode([], [], [logits])
    chances = torch.sigmoid(torch.tensor(logits, dtype=torch.float64))
    assert list(several.scores.values()) == pytest.approx(chances.tolist(), abs=1e-9)
    assert several.label == tuple(name for name, value in zip("abc", values, strict=True) if np.float32(value) > 0)

    (number,) = NUMBER_TASK.decode([], [], [logits[:1]])
    assert number.value == float(logits[0])
    assert number.as_json() == {"value": float(logits[0])}


def test_huge_logits_decode_without_a_warning():
    for task in (SINGLE_TASK, MULTI_TASK):
        (answer,) = task.decode([], [], [np.array([-3e38, 0.0, 3e38], np.float32)])
        assert answer.scores[task.labels[0]] == 0.0
        assert answer.scores[task.labels[2]] == 1.0


def test_targets_are_what_the_models_loss_takes():
    for task, value, expected, kind in (
        (SINGLE_TASK, "good", 2, np.int64),
        (MULTI_TASK, "a,c", [1, 0, 1], np.float32),
        (NUMBER_TASK, "2.5", 2.5, np.float32),
    ):
        (example,) = read(task, {"text": "x", "label": value})
        labels = task.targets(example, None)["labels"]
        assert labels.tolist() == expected
        assert labels.dtype == kind


def test_agreement_counts_rows_with_the_same_label():
    rows_of = [np.array(v, np.float32) for v in ([1, 2, 3], [3, 2, 1], [0, 5, 0])]
    other = [np.array(v, np.float32) for v in ([0, 0, 3], [0, 2, 1], [0, 1, 0])]
    answers, others = SINGLE_TASK.decode([], [], rows_of), SINGLE_TASK.decode([], [], other)
    assert SINGLE_TASK.agreement(answers, others).tolist() == [[1, 1], [0, 1], [1, 1]]
    close = [NUMBER_TASK.decode([], [], [np.array([v], np.float32)])[0] for v in (1.0, 1.005, 1.2)]
    assert NUMBER_TASK.agreement([close[0]] * 3, close)[:, 0].tolist() == [1, 1, 0]


@pytest.mark.parametrize("task", [SINGLE_TASK, MULTI_TASK, NUMBER_TASK], ids=lambda task: task.problem)
def test_settings_survive_json(task):
    import json

    assert from_json(json.loads(json.dumps(to_json(task)))) == task


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "sequence_clasification"}, "Did you mean 'sequence_classification'"),
        ({"name": None}, "no task 'None'"),
        ({"labels": "bad"}, "'labels' must be a list"),
        ({"labels": ["a", 3]}, "'labels' must be str. Got 3"),
        ({"labels": []}, "head has 0 outputs; single_label_classification needs at least two"),
        ({"max_seq_length": "long"}, "'max_seq_length' must be int"),
        ({"max_seq_length": True}, "'max_seq_length' must be int"),
        ({"problem": "regresion"}, "Did you mean 'regression'"),
        ({"problem": "regression"}, "head has 3 outputs; regression needs one output"),
        ({"metric": "f1"}, "metric 'f1' does not fit"),
        ({"stride": 3}, "has no entry 'stride'"),
    ],
)
def test_damaged_settings_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        from_json({**to_json(SINGLE_TASK), **changes})


def test_missing_setting_is_named():
    with pytest.raises(UserError, match="lacks the entry 'labels'"):
        from_json({"name": "sequence_classification"})
