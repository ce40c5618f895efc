"""CoNLL columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refusal
from tersely.data import read


def write(folder: Path, text: str, name: str = "a.conll") -> Path:
    file = folder / name
    file.write_bytes(text.encode())
    return file


WORD = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=" \t\n\r\ufeff#-"), min_size=1, max_size=4
)
SENTENCES = st.lists(
    st.lists(st.tuples(WORD, st.sampled_from(["O", "B-PER", "I-PER"])), min_size=1, max_size=4), min_size=1, max_size=4
)


@given(sentences=SENTENCES, separator=st.sampled_from([" ", "\t", "  "]), end=st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read_back_with_lines(tmp_path_factory, sentences, separator, end):
    text, starts = "", []
    for sentence in sentences:
        starts.append(text.count("\n") + 1)
        text += "".join(f"{word}{separator}{tag}{end}" for word, tag in sentence) + end
    rows = read(write(tmp_path_factory.mktemp("conll"), text))
    assert [list(zip(record["words"], record["tags"], strict=True)) for record in rows] == sentences
    assert list(rows.lines) == starts


def test_first_column_is_the_word_and_last_the_tag(tmp_path):
    file = write(tmp_path, "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\nPeter NNP B-NP B-PER\n")
    rows = read(file)
    assert rows.records == (
        {"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
        {"words": ["Peter"], "tags": ["B-PER"]},
    )
    assert rows.lines == (3, 7)


def test_one_column_gives_words_without_tags(tmp_path):
    rows = read(write(tmp_path, "EU\nrejects\n\nPeter\n"))
    assert rows.columns == ("words",)
    assert rows.records == ({"words": ["EU", "rejects"]}, {"words": ["Peter"]})


@pytest.mark.parametrize("word", [" ", "\u3000", "\xa0", "\u2028"])
def test_space_may_be_a_word_between_tabs(tmp_path, word):
    rows = read(write(tmp_path, f"中\tB-LOC\n{word}\tO\n国\tI-LOC\n"))
    assert rows.records == ({"words": ["中", word, "国"], "tags": ["B-LOC", "O", "I-LOC"]},)


def test_ideographic_space_is_a_word_between_blanks(tmp_path):
    assert read(write(tmp_path, "中 O\n\u3000 O\n")).records[0]["words"] == ["中", "\u3000"]


def test_comments_are_passed_over_and_hash_words_are_not(tmp_path):
    text = "# text = EU # rejects\nEU O\n# O\n#tag O\n\n# sent_id = 2\n# a free note here\nPeter B-PER\n\n# O\n1 O\n"
    rows = read(write(tmp_path, text))
    assert [record["words"] for record in rows] == [["EU", "#", "#tag"], ["Peter"], ["#", "1"]]
    assert rows.lines == (2, 8, 10)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("EU B-ORG\nrejects\n", ":2: The word 'rejects' has no tag."),
        ("EU\tB-ORG\nrejects\t\n", ":2: The word 'rejects' has no tag."),
        ("EU\tB-ORG\n\tO\n", ":2: The tag stands without its word."),
        ("EU B-ORG\n\nNew York B-LOC\n", ":3: The row has 3 columns, 2 expected."),
        ("EU\nrejects O\n", ":2: The row has 2 columns, 1 expected."),
        ("-DOCSTART- O\n\n", ": The file holds no words."),
    ],
)
def test_bad_row_is_named_with_its_line(tmp_path, text, place):
    file = write(tmp_path, text)
    assert refusal(read, file).startswith(f"{file}{place}")


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.txt", "中\tB-LOC\n国\tI-LOC\n\n人\tO\n", ("words", "tags")),
        ("a.txt", "EU NNP B-ORG\nrejects VBZ O\n", ("words", "tags")),
        ("a.tsv", "EU\tB-ORG\nrejects\tO\n\nPeter\tB-PER\n", ("words", "tags")),
        ("a.tsv", "I rated it\tB\nnot good\tE\n", ("text", "label")),
        ("a.txt", "a good film\nanother one, it is\n", ("text",)),
        ("a.txt", "a good film\t1\na bad one\t0\n", ("text", "label")),
        ("a.txt", "text,label\ngood,1\n", ("text", "label")),
        ("a.txt", '{"text": "a"}\n{"text": "b"}\n', ("text",)),
        ("train", "中\tB-LOC\n", ("words", "tags")),
    ],
)
def test_format_is_found_from_the_content(tmp_path, name, text, columns):
    assert read(write(tmp_path, text, name)).columns == columns
