"""SQuAD: records, lines, and answers held against their offsets."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refusal
from tersely.data import from_dataset, read
from tersely.data.squad import nearest_place

CONTEXT = "Paris is in France. Paris is big."


def article(*questions: dict[str, Any], context: str = CONTEXT) -> dict[str, Any]:
    return {"title": "t", "paragraphs": [{"id": "P", "context": context, "qas": list(questions)}]}


def question(name: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    golds = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"{name}?", "answers": golds, **more}


def write(folder: Path, *articles: dict[str, Any], indent: int | None = 1) -> Path:
    file = folder / "a.json"
    file.write_text(json.dumps({"version": "1", "data": articles}, indent=indent, ensure_ascii=False), encoding="utf-8")
    return file


def test_each_question_is_a_record_with_all_its_answers(tmp_path):
    file = write(
        tmp_path, article(question("q1", ("Paris", 0), ("France", 12))), article(question("q2", ("Paris", 20)))
    )
    rows = read(file)
    assert rows.columns == ("id", "question", "context", "answers")
    assert [record["id"] for record in rows] == ["q1", "q2"]
    assert rows.records[0]["answers"] == [{"text": "Paris", "start": 0}, {"text": "France", "start": 12}]
    lines = file.read_text().split("\n")
    assert [f'"{name}"' in lines[line - 1] for name, line in zip(["q1", "q2"], rows.lines, strict=True)] == [True, True]


@pytest.mark.parametrize("indent", [None, 2])
def test_file_on_one_line_reads_like_a_tidy_one(tmp_path, indent):
    rows = read(write(tmp_path, article(question("q1", ("Paris", 0))), indent=indent))
    assert rows.records[0]["answers"] == [{"text": "Paris", "start": 0}]


def test_answers_column_is_absent_where_the_file_has_none(tmp_path):
    rows = read(write(tmp_path, article({"id": "q1", "question": "Where?"})))
    assert rows.columns == ("id", "question", "context")


def test_impossible_questions_and_empty_answers_have_no_answers(tmp_path):
    file = write(
        tmp_path,
        article(question("q1", is_impossible=True), question("q2", ("", -1)), question("q3", ("Paris", 0))),
    )
    assert [len(record["answers"]) for record in read(file)] == [0, 0, 1]


def test_answer_at_another_place_moves_to_the_nearest_and_is_counted_once(tmp_path, caplog):
    file = write(tmp_path, article(question("q1", ("Paris", 18), ("Paris", 3)), question("q2", ("France", -1))))
    with caplog.at_level(logging.WARNING):
        rows = read(file)
    assert [gold["start"] for record in rows for gold in record["answers"]] == [20, 0, 12]
    (record,) = caplog.records
    assert record.name == "tersely.data.squad"
    assert "3 answers do not stand at their offset" in record.getMessage()
    assert (
        f"{file}:{rows.lines[0]}: Question 'q1', answer 'Paris': not at 18, found at 20 instead" in record.getMessage()
    )


def test_answer_that_is_nowhere_is_refused_with_the_question_named(tmp_path):
    file = write(tmp_path, article(question("q1", ("Paris", 0)), question("q2", ("London", 4))))
    line = next(number for number, line in enumerate(file.read_text().split("\n"), start=1) if '"q2"' in line)
    said = (
        f"{file}:{line}: Question 'q2': the answer 'London' is not found at its offset 4, nor anywhere in the context."
    )
    assert refusal(read, file).startswith(said)


def test_gold_without_offset_that_is_nowhere_stays_only_beside_one_that_is_there(tmp_path, caplog):
    rows = read(write(tmp_path, article(question("q1", ("39764.0", -1), ("Paris", 0)))))
    assert rows.records[0]["answers"] == [{"text": "39764.0", "start": -1}, {"text": "Paris", "start": 0}]
    assert "1 answers without an offset" in caplog.text
    assert "Question 'q2'" in refusal(read, write(tmp_path, article(question("q2", ("39764.0", -1)))))


@pytest.mark.parametrize(
    ("malformed", "what"),
    [
        ({"question": "?", "answers": []}, "A question needs an 'id' and a 'question'."),
        ({"id": "q", "question": "?", "answers": "Paris"}, "'answers' must be a list."),
        ({"id": "q", "question": "?", "answers": [{"text": "Paris"}]}, "An answer needs a 'text' and"),
        ({"id": "q", "question": "?", "answers": [{"text": 3, "answer_start": 0}]}, "An answer needs a 'text' and"),
        ({"id": "q", "question": "?", "answers": {"text": ["a"], "answer_start": []}}, "There are 1 answers but 0"),
        ("Where?", "A question needs an 'id' and a 'question'."),
    ],
)
def test_malformed_questions_are_refused(tmp_path, malformed, what):
    assert what in refusal(read, write(tmp_path, article(malformed)))


def test_paragraph_without_context_is_refused(tmp_path):
    assert "needs a 'context'" in refusal(read, write(tmp_path, {"paragraphs": [{"qas": []}]}))


def test_flat_records_in_the_form_of_datasets_come_out_alike(tmp_path):
    flat = {"id": "q", "question": "?", "context": CONTEXT, "answers": {"text": ["France"], "answer_start": [12]}}
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(flat) + "\n")
    expected = [{"text": "France", "start": 12}]
    assert read(file).records[0]["answers"] == from_dataset([flat]).records[0]["answers"] == expected


@given(text=st.text("ab", min_size=1, max_size=3), context=st.text("ab", max_size=12), start=st.integers(-1, 14))
def test_nearest_place_agrees_with_trying_every_place(text, context, start):
    places = [place for place in range(len(context)) if context[place : place + len(text)] == text]
    place = nearest_place(text, context, start)
    if not places:
        assert place is None
    else:
        assert place in places
        assert abs(place - start) == min(abs(other - start) for other in places)
