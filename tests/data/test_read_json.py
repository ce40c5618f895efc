"""json in its four shapes, against the json module."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refusal
from tersely.data import iter_records, read
from tersely.errors import UserError

VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2),
    max_leaves=4,
)
RECORDS = st.lists(st.fixed_dictionaries({"text": VALUE, "label": VALUE}), min_size=1, max_size=5)


@given(records=RECORDS, ascii=st.booleans(), indent=st.sampled_from([None, 1]))
def test_every_shape_gives_the_same_records(tmp_path_factory, records, ascii, indent):
    folder = tmp_path_factory.mktemp("json")
    listed, under, lines = folder / "list.json", folder / "data.json", folder / "lines.json"
    listed.write_text(json.dumps(records, ensure_ascii=ascii, indent=indent), encoding="utf-8")
    note = {"version": {"data": [1]}, "data": records, "end": "]"}
    under.write_text(json.dumps(note, ensure_ascii=ascii, indent=indent), encoding="utf-8")
    lines.write_text("".join(json.dumps(record, ensure_ascii=ascii) + "\n" for record in records), encoding="utf-8")
    for file in (listed, under, lines):
        assert list(read(file).records) == records


def test_lines_of_a_list_are_where_each_object_starts(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('[\n  {"text": "a"},\n\n  {"text":\n "b"}, {"text": "c"}]\n')
    assert read(file).lines == (2, 4, 5)


def test_missing_keys_are_none_and_all_columns_are_told(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\n\n{"text": "b", "label": 1}\n')
    rows = read(file)
    assert rows.columns == ("text", "label")
    assert [record["label"] for record in rows] == [None, 1]
    assert rows.lines == (1, 3)


def test_u2028_inside_a_string_does_not_end_a_line(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a\u2028b"}\r\n{"text": "c"}\r\n', encoding="utf-8")
    assert [record["text"] for record in read(file)] == ["a\u2028b", "c"]


def test_json_lines_are_streamed(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\n{"text": "b"}\nbroken\n')
    records = iter_records(file)
    assert next(records) == (1, {"text": "a"})
    assert next(records) == (2, {"text": "b"})
    with pytest.raises(UserError, match=r"a\.jsonl:3:1"):
        next(records)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text": "b" "label": 1}\n', ":2:14: The json is corrupt"),
        ("a.json", '{"text": "a" "label": 1}\n{"text": "b"}\n', ":1:14: The json is corrupt"),
        ("a.json", '[{"text": "a"},\n {"text": }]', ":2:11: The json is corrupt"),
        ("a.json", '[{"text": "a"}\n {"text": "b"}]', ":2:2: The json is corrupt"),
        ("a.json", '[{"text": "a"},\n {"text": "b"}', ":2:15: The json is corrupt"),
        ("a.json", '[{"text": "a"}]\nx', ":2:1: The json is corrupt"),
        ("a.json", '{"data": [{"text": "a"}]\n, 3}', ":2:3: The json is corrupt"),
        ("a.json", '{"data"\n[{"text": "a"}]}', ":2:1: The json is corrupt"),
        ("a.json", "[1, 2]", ":1: The row is not an object but a number."),
        ("a.json", '[{"text": "a"},\nnull]', ":2: The row is not an object but null."),
        ("a.jsonl", '{"text": "a"}\n["b"]\n', ":2: The row is not an object but a list."),
        ("a.json", "[]", ": The file holds no rows."),
        ("a.json", '{"data": []}', ": The file holds no rows."),
        ("a.json", '{\n"rows": []}', ": The object holds no list under 'data'."),
        ("a.json", '"text"', ": The file must hold a list of objects."),
        ("a.jsonl", '{"text": "\\ud83d"}\n', ":1: The row holds half a character"),
        ("a.json", '[\n{"text": "\\uD83D"}]', ":2: The row holds half a character"),
        ("a.jsonl", "[" * 200_000 + "\n", ":1: The json is nested too deeply."),
        ("a.jsonl", '{"text": ' + "9" * 5000 + "}\n", ":1: The json cannot be read"),
    ],
)
def test_bad_json_is_named_with_its_place(tmp_path, name, text, place):
    file = tmp_path / name
    file.write_text(text)
    assert refusal(read, file).startswith(f"{file}{place}")


def test_whole_character_written_as_two_surrogates_is_fine(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "\\ud83d\\ude00"}\n')
    assert read(file).records == ({"text": "\U0001f600"},)
