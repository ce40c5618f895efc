"""CLUE's seven tasks, one by one."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tersely.data import read, read_dataset
from tersely.data.clue import RULES
from tersely.errors import UserError


def write(folder: Path, *records: dict[str, Any], name: str = "train.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return file


WSC = {
    "target": {"span2_index": 5, "span1_index": 0, "span1_text": "小明", "span2_text": "他"},
    "idx": 0,
    "label": "true",
    "text": "小明说今天他很忙。"[:5] + "他很忙。",
}


@pytest.mark.parametrize(
    ("task", "record", "expected"),
    [
        (
            "afqmc",
            {"sentence1": "甲", "sentence2": "乙", "label": "0"},
            {"text": "甲", "text_pair": "乙", "label": "0"},
        ),
        (
            "tnews",
            {"label": "108", "label_desc": "news_edu", "sentence": "甲", "keywords": "x,y"},
            {"text": "甲", "label": "108"},
        ),
        ("tnews", {"label": 108, "sentence": "甲"}, {"text": "甲", "label": "108"}),
        ("iflytek", {"label": "17", "label_des": "休闲", "sentence": "甲"}, {"text": "甲", "label": "17"}),
        (
            "ocnli",
            {"level": "easy", "sentence1": "甲", "sentence2": "乙", "label": "neutral", "genre": "tv", "prem_id": "1"},
            {"text": "甲", "text_pair": "乙", "label": "neutral"},
        ),
        (
            "cmnli",
            {"sentence1": "甲", "sentence2": "乙", "label": "entailment"},
            {"text": "甲", "text_pair": "乙", "label": "entailment"},
        ),
        ("cluewsc2020", WSC, {"text": "_小明_说今天[他]很忙。", "label": "true"}),
        (
            "csl",
            {"id": 1, "abst": "摘要", "keyword": ["甲", "乙 丙"], "label": "1"},
            {"text": "甲 乙 丙", "text_pair": "摘要", "label": "1"},
        ),
    ],
)
def test_fields_become_canonical_columns(tmp_path, task, record, expected):
    file = write(tmp_path, record)
    for name in (task, f"clue {task}", f"CLUE/{task.upper()}"):
        assert read(file, dataset=name).records == (expected,)
    unlabelled = {name: value for name, value in record.items() if name != "label"}
    without = {name: value for name, value in expected.items() if name != "label"}
    assert read(write(tmp_path, unlabelled, name="test.json"), dataset=task).records == (without,)


@pytest.mark.parametrize("task", ["ocnli", "cmnli"])
def test_rows_without_agreement_are_left_out_and_counted(tmp_path, task, caplog):
    rows = [{"sentence1": "甲", "sentence2": "乙", "label": label} for label in ["-", "neutral", "-", "entailment"]]
    with caplog.at_level(logging.INFO):
        got = read(write(tmp_path, *rows), dataset=task)
    assert [record["label"] for record in got] == ["neutral", "entailment"]
    assert got.lines == (2, 4)
    assert "2 rows without an agreed label ('-') left out." in caplog.text
    with pytest.raises(UserError, match="No rows are left"):
        read(write(tmp_path, rows[0]), dataset=task)


def marked_by_insertion(text: str, noun: str, noun_at: int, pronoun: str, pronoun_at: int) -> str:
    """PaddleNLP's way: marks are inserted one by one into a list, the earlier word's first."""
    letters = list(text)
    spans = sorted([(noun_at, len(noun), "_", "_"), (pronoun_at, len(pronoun), "[", "]")])
    for shift, (start, length, left, right) in zip((0, 2), spans, strict=True):
        letters.insert(start + shift, left)
        letters.insert(start + shift + length + 1, right)
    return "".join(letters)


@given(
    parts=st.tuples(*[st.text("甲乙丙_[]", max_size=4)] * 3),
    words=st.tuples(*[st.text("丁戊", min_size=1, max_size=3)] * 2),
    swap=st.booleans(),
)
def test_coreference_marks_agree_with_inserting_them_one_by_one(parts, words, swap):
    before, between, after = parts
    text = before + words[0] + between + words[1] + after
    places = (len(before), len(before) + len(words[0]) + len(between))
    first, second = (1, 0) if swap else (0, 1)
    target = {
        "span1_text": words[first],
        "span1_index": places[first],
        "span2_text": words[second],
        "span2_index": places[second],
    }
    got = RULES["cluewsc2020"]({"text": text, "target": target}, "a:1")["text"]
    assert got == marked_by_insertion(text, words[first], places[first], words[second], places[second])


def test_coreference_words_must_stand_where_they_are_said_to(tmp_path):
    wrong = {**WSC, "target": {**WSC["target"], "span2_index": 4}}
    file = write(tmp_path, WSC, wrong)
    with pytest.raises(UserError) as caught:
        read(file, dataset="cluewsc2020")
    assert str(caught.value) == f"{file}:2: The text does not hold span2 '他' at 4."


@pytest.mark.parametrize(
    ("task", "change", "said"),
    [
        ("cluewsc2020", {"text": None}, "The field 'text' must be a string, 'target' an object."),
        ("cluewsc2020", {"target": "他"}, "The field 'text' must be a string, 'target' an object."),
        ("cluewsc2020", {"target": {**WSC["target"], "span1_index": "0"}}, "The text does not hold span1 '小明' at 0."),
        ("cluewsc2020", {"target": {**WSC["target"], "span1_text": None}}, "The text does not hold span1 'None' at 0."),
        ("cluewsc2020", {"target": {}}, "The field 'span1_text' is missing."),
        ("csl", {"keyword": None, "abst": "甲"}, "The field 'keyword' must be a list."),
    ],
)
def test_field_of_the_wrong_kind_is_named_with_its_line(tmp_path, task, change, said):
    file = write(tmp_path, {**WSC, **change})
    with pytest.raises(UserError) as caught:
        read(file, dataset=task)
    assert str(caught.value).startswith(f"{file}:1: {said}")


def test_missing_field_is_named_with_its_line(tmp_path):
    file = write(tmp_path, {"sentence": "甲", "label": "1"}, {"text": "乙", "label": "1"})
    with pytest.raises(UserError) as caught:
        read(file, dataset="tnews")
    assert str(caught.value) == f"{file}:2: The field 'sentence' is missing. Fields here: text, label."


def test_unmistakable_files_get_canonical_columns_unasked(tmp_path):
    rows = read(write(tmp_path, {"id": 1, "abst": "摘要", "keyword": ["甲", "乙"], "label": "1"}))
    assert rows.columns == ("text", "text_pair", "label", "id", "abst", "keyword")
    assert read(write(tmp_path, WSC)).records[0]["text"] == "_小明_说今天[他]很忙。"
    plain = {"text": "甲", "label": 1}
    assert read(write(tmp_path, plain)).records == (plain,)


def test_data_set_is_read_by_its_name(tmp_path):
    write(tmp_path / "clue" / "tnews_public", {"sentence": "甲", "label": 100}, name="dev.json")
    assert read_dataset("clue tnews", "dev", tmp_path).records == ({"text": "甲", "label": "100"},)
    with pytest.raises(UserError, match="Did you mean 'tnews'"):
        read(tmp_path / "clue" / "tnews_public" / "dev.json", dataset="tnwes")
