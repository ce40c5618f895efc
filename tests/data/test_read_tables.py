"""csv and tsv against Python's own csv module and against plain splitting."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refusal
from tersely.data import read
from tersely.errors import UserError


def write(folder: Path, name: str, text: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\ufeff"), max_size=8)


@given(rows=st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=6))
def test_csv_reads_back_what_the_csv_module_writes(tmp_path_factory, rows):
    written = io.StringIO(newline="")
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    starts = []
    for row in [("text", "label"), *rows]:
        starts.append(written.getvalue().count("\n") + 1)
        writer.writerow(row)
    got = read(write(tmp_path_factory.mktemp("csv"), "a.csv", written.getvalue()))
    assert [tuple(record.values()) for record in got] == rows
    assert list(got.lines) == starts[1:]


PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\x00\ufeff"), min_size=1, max_size=8)


@given(rows=st.lists(st.tuples(PLAIN, PLAIN, PLAIN), min_size=1, max_size=6))
def test_tsv_reads_back_every_field_untouched(tmp_path_factory, rows):
    rows = [("x" + a, b, c) for a, b, c in rows]
    text = "".join("\t".join(row) + "\n" for row in rows)
    got = read(write(tmp_path_factory.mktemp("tsv"), "a.tsv", text), header=False, format="tsv")
    assert [tuple(record.values()) for record in got] == rows
    assert got.lines == tuple(range(1, len(rows) + 1))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_byte_order_mark_is_not_part_of_the_first_name(tmp_path, name):
    text = "\ufefftext,label\ngood,1\n".replace(",", "," if name == "a.csv" else "\t")
    rows = read(write(tmp_path, name, text))
    assert rows.columns == ("text", "label")
    assert rows.records == ({"text": "good", "label": "1"},)
    assert rows.where(0) == f"{tmp_path / name}:2"


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_carriage_returns_are_not_part_of_the_last_field(tmp_path, name):
    text = "text,label\r\ngood,1\r\nbad,0\r\n".replace(",", "," if name == "a.csv" else "\t")
    assert [record["label"] for record in read(write(tmp_path, name, text))] == ["1", "0"]


def test_tsv_quotes_are_text(tmp_path):
    rows = read(write(tmp_path, "a.tsv", 'sentence\tlabel\n"Open\t1\n"a" b\t0\n'))
    assert [record["sentence"] for record in rows] == ['"Open', '"a" b']


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_only_line_feeds_end_a_line(tmp_path, mark, name):
    text = f"text,label\none{mark}line,1\ntwo,0\n".replace(",", "," if name == "a.csv" else "\t")
    rows = read(write(tmp_path, name, text))
    assert rows.records[0]["text"] == f"one{mark}line"
    assert rows.lines == (2, 3)


def test_csv_line_is_where_a_record_of_several_lines_starts(tmp_path):
    rows = read(write(tmp_path, "a.csv", 'text,label\n"one\ntwo\nthree",1\n\nfour,0\n'))
    assert rows.lines == (2, 6)
    assert rows.records[0]["text"] == "one\ntwo\nthree"


@pytest.mark.parametrize(
    ("text", "columns", "count"),
    [
        ("good\t1\nbad\t0\n", ("text", "label"), 2),
        ("a\tb\t1\n", ("text", "text_pair", "label"), 1),
        ("good\n", ("text",), 1),
        ("a\tb\tc\td\n", ("column_1", "column_2", "column_3", "column_4"), 1),
        ("text\tlabel\ngood\t1\n", ("text", "label"), 1),
        ("Sentence\tmood\ngood\t1\n", ("Sentence", "mood"), 1),
        ("text\ttext\n", ("text", "label"), 1),
        ("label\t7\n", ("text", "label"), 1),
        ("\ttext\tlabel\n0\tgood\t1\n", ("column_1", "text", "label"), 1),
    ],
)
def test_header_is_taken_as_such_only_if_it_looks_like_one(tmp_path, text, columns, count):
    rows = read(write(tmp_path, "a.tsv", text), format="tsv")
    assert rows.columns == columns
    assert len(rows) == count


def test_header_option_overrules_the_guess(tmp_path):
    file = write(tmp_path, "a.csv", "foo,bar\ngood,1\n")
    assert len(read(file)) == 2
    assert read(file, header=True).columns == ("foo", "bar")
    named = write(tmp_path, "b.csv", "text,label\ngood,1\n")
    assert len(read(named, header=False)) == 2


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_csv_separator_is_found_from_the_header(tmp_path, mark):
    file = write(tmp_path, "a.csv", f"text{mark}label\ngood, really{mark}1\n")
    assert read(file).records == ({"text": "good, really", "label": "1"},)


def test_wrong_number_of_fields_is_named_with_its_line(tmp_path):
    file = write(tmp_path, "a.tsv", "text\tlabel\ngood\t1\nbad\t0\textra\n")
    assert refusal(read, file).startswith(f"{file}:3: The row has 3 fields, 2 expected (text, label).")
    file = write(tmp_path, "a.csv", 'text,label\n"two\nlines",1\nbad\n')
    assert refusal(read, file).startswith(f"{file}:4: The row has 1 fields, 2 expected")


def test_broken_quoting_is_named_where_the_record_starts(tmp_path):
    file = write(tmp_path, "a.csv", 'text,label\ngood,1\n"never closed,0\nmore,1\n')
    assert refusal(read, file).startswith(f"{file}:3: The row is not valid csv")
    file = write(tmp_path, "b.csv", 'text,label\n"good" sure,1\n')
    assert refusal(read, file).startswith(f"{file}:2: The row is not valid csv")


def test_field_beyond_the_csv_limit_is_an_error_of_the_users_kind(tmp_path):
    file = write(tmp_path, "a.csv", "text,label\n" + "x" * 200_000 + ",1\n")
    assert refusal(read, file).startswith(f"{file}:2: ")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.conll", "a.txt"])
@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_empty_file_is_refused(tmp_path, name, content):
    file = write(tmp_path, name, content)
    assert refusal(read, file) == f"{file}: The file is empty."


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_header_alone_is_refused(tmp_path, name):
    file = write(tmp_path, name, "text,label\n".replace(",", "," if name == "a.csv" else "\t"))
    assert refusal(read, file) == f"{file}: The file has a header but no rows."


def test_doubled_header_is_refused(tmp_path):
    file = write(tmp_path, "a.csv", "text,text\na,b\n")
    assert refusal(read, file, header=True).startswith(f"{file}:1: The header names the column 'text' twice.")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.conll", "a.txt"])
def test_bytes_that_are_not_utf_8_are_named_by_line_and_offset(tmp_path, name):
    content = '{"text": "中"}\n'.encode() + b'{"text": "caf\xe9"}\n'
    file = write(tmp_path, name, content)
    said = refusal(read, file)
    assert said.startswith(f"{file}:2: The file is not UTF-8: byte 0xe9 at offset {content.index(0xE9)}.")


def test_offset_counts_the_byte_order_mark(tmp_path):
    content = b"\xef\xbb\xbftext,label\n\xff,1\n"
    file = write(tmp_path, "a.csv", content)
    assert f"{file}:2:" in refusal(read, file)
    assert f"offset {content.index(0xFF)}." in refusal(read, file)


def test_utf_16_is_named_as_such(tmp_path):
    file = write(tmp_path, "a.csv", "text,label\ngood,1\n".encode("utf-16"))
    assert "iconv -f UTF-16" in refusal(read, file)


def test_missing_file_folder_and_packed_file_are_refused(tmp_path):
    assert refusal(read, tmp_path / "no.csv") == f"{tmp_path / 'no.csv'}: There is no such file. Check the path."
    assert refusal(read, tmp_path).startswith(f"{tmp_path}: This is a folder, not a file.")
    packed = write(tmp_path, "a.csv", b"\x1f\x8b\x08\x00\x00")
    assert refusal(read, packed) == f"{packed}: The file is packed (gzip). Unpack it first."
    assert "The suffix '.gz' is not known." in refusal(read, write(tmp_path, "a.csv.gz", b"\x1f\x8b\x08"))


def test_option_without_effect_is_refused(tmp_path):
    file = write(tmp_path, "a.jsonl", '{"text": "a"}\n')
    assert "The 'header' option means nothing to jsonl files." in refusal(read, file, header=True)
    assert "Did you mean 'csv'?" in refusal(read, file, format="cvs")
    assert "The 'split' option needs a folder" in refusal(read, file, split="train")


ROWS = "".join(f"好书 {i}\t{'差' if i % 3 else '好'}\n" for i in range(12))
NUMBERS = "".join(f"好书 {i}\t{i / 4}\n" for i in range(12))


@pytest.mark.parametrize("rows", [ROWS, NUMBERS])
def test_names_in_other_words_are_asked_about_not_taken_as_a_row(tmp_path, rows):
    file = write(tmp_path, "a.tsv", "评论\t情感\n" + rows)
    said = refusal(read, file)
    assert said.startswith(
        f"{file}:1: Does the first line name the columns? Its last field, '情感', stands in no other"
    )
    assert "header true text_column '评论' label_column '情感'" in said
    assert "header false" in said
    assert read(file, header=True).columns == ("评论", "情感")
    assert len(read(file, header=False)) == 13


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        "一本书\t好\n" + ROWS,
        "一本书\t一般\n" + ROWS + "另一本\t很好\n",  # two labels that stand once
        "评论\t情感\n" + "".join(ROWS.splitlines(keepends=True)[:7]),  # too few to tell
        "".join(f"a question {i}\tits pair {i}\n" for i in range(12)),
    ],
)
def test_a_first_row_like_the_others_is_a_row(tmp_path, text):
    assert len(read(write(tmp_path, "a.tsv", text))) == text.count("\n")


def test_names_of_pairs_are_told_in_order(tmp_path):
    rows = "".join(f"a {i}\tb {i}\t{i % 2}\n" for i in range(12))
    said = refusal(read, write(tmp_path, "a.tsv", "früher\tspäter\tgleich\n" + rows))
    assert "text_column 'früher' text_pair_column 'später' label_column 'gleich'" in said


def test_a_column_that_the_first_row_names_is_told_of(tmp_path):
    rows = read(write(tmp_path, "a.tsv", "编号\t来源\t评论\t情感\n1\tx\t好\t1\n"))
    with pytest.raises(UserError, match="stands in the first row: say header true"):
        rows.column("text_column", "评论", ("text",))
