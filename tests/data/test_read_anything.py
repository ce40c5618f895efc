"""Whatever a file holds: rows that are sound, or an error of the user's kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tersely.data
from tersely.data import FORMATS, Rows, read
from tersely.errors import UserError

SIGNS = list("\"',\t\n\r{}[]:1O \ufeff\x00é\u2028")
PIECES = ["\r\n", "# ", "-DOCSTART-", '"data"', '"paragraphs"', '"text"', "text", "label", "null", "\\ud800"]
MARKS = st.sampled_from([*SIGNS, *PIECES, '{"text": 1}\n', "a\tO\n"])
JUNK = st.lists(MARKS, max_size=14).map(lambda marks: "".join(marks).encode()) | st.binary(max_size=24)


def read_or_refuse(file: Path) -> Rows | None:
    try:
        return read(file)
    except UserError as error:
        said = str(error)
    assert said.startswith(str(file))
    return None


@pytest.mark.parametrize(
    "name", [f"a{suffix}" for form in FORMATS.values() for suffix in form.suffixes] + ["a.txt", "a"]
)
@given(content=JUNK)
@settings(max_examples=40, deadline=None)
def test_any_bytes_give_sound_rows_or_a_user_error(tmp_path_factory, name, content):
    file = tmp_path_factory.getbasetemp() / f"junk_{name}"
    file.write_bytes(content)
    rows = read_or_refuse(file)
    if rows is None:
        return
    assert len(rows) == len(rows.lines) >= 1
    assert all(record.keys() == set(rows.columns) for record in rows)
    assert list(rows.lines) == sorted(rows.lines)
    assert 1 <= rows.lines[0] <= rows.lines[-1] <= content.count(b"\n") + 1


VALUE = st.none() | st.booleans() | st.integers(-2, 9) | st.text("ab", max_size=2)
NESTED = st.recursive(
    VALUE,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["data", "paragraphs", "context", "qas", "id", "question", "answers", "text", "answer_start"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
QUESTION = st.fixed_dictionaries({"id": VALUE, "question": VALUE}, optional={"answers": NESTED, "is_impossible": VALUE})
PARAGRAPH = st.fixed_dictionaries({"context": VALUE, "qas": st.lists(QUESTION | NESTED, max_size=3)})
ARTICLES = st.lists(st.fixed_dictionaries({"paragraphs": st.lists(PARAGRAPH | NESTED, max_size=2)}), max_size=2)
CLUE = st.dictionaries(
    st.sampled_from(["text", "target", "keyword", "abst", "label", "sentence1", "sentence2", "genre", "prem_id"]),
    NESTED | st.fixed_dictionaries({"span1_index": NESTED, "span1_text": NESTED, "span2_index": VALUE}),
)
FLAT = st.fixed_dictionaries({"question": NESTED, "context": NESTED, "answers": NESTED})


@given(
    content=NESTED
    | ARTICLES
    | st.fixed_dictionaries({"data": ARTICLES})
    | st.lists(CLUE | FLAT, min_size=1, max_size=3)
)
@settings(max_examples=150, deadline=None)
def test_any_json_gives_rows_or_a_user_error(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "junk.json"
    file.write_text(json.dumps(content, indent=1))
    rows = read_or_refuse(file)
    assert rows is None or len(rows) >= 1


def test_every_public_name_is_there_and_listed():
    assert all(hasattr(tersely.data, name) for name in tersely.data.__all__)
    assert sorted(tersely.data.__all__) == tersely.data.__all__
