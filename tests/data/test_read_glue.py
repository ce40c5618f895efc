"""GLUE's layouts, one by one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tersely.data import read, read_dataset
from tersely.errors import UserError

PARSES = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
LAYOUTS = {
    "cola": (None, ["gj04", "1", "", "A text."], {"text": "A text.", "label": "1"}),
    "sst2": (["sentence", "label"], ["a text ", "0"], {"text": "a text ", "label": "0"}),
    "mrpc": (
        ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        ["1", "7", "8", 'He "said', "B."],
        {"text": 'He "said', "text_pair": "B.", "label": "1"},
    ),
    "stsb": (
        ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"],
        ["0", "g", "f", "2012", "1", "none", "none", "A.", "B.", "5.000"],
        {"text": "A.", "text_pair": "B.", "label": "5.000"},
    ),
    "qqp": (
        ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
        ["0", "1", "2", "A?", "B?", "0"],
        {"text": "A?", "text_pair": "B?", "label": "0"},
    ),
    "mnli": (
        ["index", "promptID", "pairID", "genre", *PARSES, "sentence1", "sentence2", "label1", "gold_label"],
        ["0", "1", "2", "g", "p", "p", "p", "p", "A.", "B.", "neutral", "entailment"],
        {"text": "A.", "text_pair": "B.", "label": "entailment"},
    ),
    "qnli": (
        ["index", "question", "sentence", "label"],
        ["0", "A?", "B.", "not_entailment"],
        {"text": "A?", "text_pair": "B.", "label": "not_entailment"},
    ),
    "rte": (
        ["index", "sentence1", "sentence2", "label"],
        ["0", "A.", "B.", "entailment"],
        {"text": "A.", "text_pair": "B.", "label": "entailment"},
    ),
    "wnli": (
        ["index", "sentence1", "sentence2", "label"],
        ["0", "A.", "B.", "1"],
        {"text": "A.", "text_pair": "B.", "label": "1"},
    ),
}
TESTS = {  # test files: no label, and often other columns
    "cola": (["index", "sentence"], ["0", "A."]),
    "sst2": (["index", "sentence"], ["0", "A."]),
    "mrpc": (["index", "#1 ID", "#2 ID", "#1 String", "#2 String"], ["0", "1", "2", "A.", "B."]),
    "stsb": (LAYOUTS["stsb"][0][:-1], LAYOUTS["stsb"][1][:-1]),
    "qqp": (["id", "question1", "question2"], ["0", "A.", "B."]),
    "mnli": (LAYOUTS["mnli"][0][:-2], LAYOUTS["mnli"][1][:-2]),
    "qnli": (["index", "question", "sentence"], ["0", "A.", "B."]),
    "rte": (["index", "sentence1", "sentence2"], ["0", "A.", "B."]),
    "wnli": (["index", "sentence1", "sentence2"], ["0", "A.", "B."]),
}


def write(folder: Path, name: str, *rows: list[str] | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text("\ufeff" + "".join("\t".join(row) + "\n" for row in rows if row), encoding="utf-8")
    return file


@pytest.mark.parametrize("task", LAYOUTS)
def test_layout_gives_canonical_columns_named_or_recognised(tmp_path, task):
    header, row, expected = LAYOUTS[task]
    file = write(tmp_path, "dev_matched.tsv" if task == "mnli" else "dev.tsv", header, row, row)
    assert read(tmp_path, split="dev", dataset=task, format="tsv").records == (expected, expected)
    rows = read(file)
    assert {name: rows.records[0][name] for name in expected} == expected
    assert set(header or ["column_1"]) <= set(rows.columns)
    assert rows.lines == ((2, 3) if header else (1, 2))


@pytest.mark.parametrize("task", TESTS)
def test_files_without_labels_give_texts_only(tmp_path, task):
    header, row = TESTS[task]
    write(tmp_path, "test.tsv", header, row)
    rows = read(tmp_path, split="test", dataset=task, format="tsv")
    assert "label" not in rows.columns
    assert rows.records[0] == {"text": "A."} | ({"text_pair": "B."} if "text_pair" in LAYOUTS[task][2] else {})


def test_microsofts_own_files_of_mrpc_are_read(tmp_path):
    header, row, expected = LAYOUTS["mrpc"]
    write(tmp_path, "msr_paraphrase_train.txt", header, row)
    write(tmp_path, "msr_paraphrase_test.txt", header, row)
    assert read(tmp_path, split="train", dataset="MRPC", format="tsv").records == (expected,)
    assert read(tmp_path / "msr_paraphrase_test.txt").records[0]["text"] == expected["text"]


def test_folder_is_found_by_name_whatever_its_spelling(tmp_path):
    header, row, expected = LAYOUTS["sst2"]
    write(tmp_path / "SST-2", "train.tsv", header, row)
    for name in ("glue sst2", "glue SST-2", "sst_2"):
        assert read_dataset(name, "train", tmp_path).records == (expected,)


def test_broken_rows_of_qqp_are_left_out_and_counted(tmp_path, caplog):
    header, row, expected = LAYOUTS["qqp"]
    write(tmp_path, "train.tsv", header, row, row[:4], row)
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path, split="train", dataset="qqp", format="tsv").records == (expected, expected)
    assert "1 broken rows left out" in caplog.text


def test_file_of_another_task_is_refused_with_its_columns(tmp_path):
    header, row, _ = LAYOUTS["qnli"]
    file = write(tmp_path, "dev.tsv", header, row)
    with pytest.raises(UserError) as caught:
        read(tmp_path, split="dev", dataset="mrpc", format="tsv")
    said = f"{file}: The columns are not those of GLUE's mrpc. Columns here: index, question, sentence, label."
    assert str(caught.value).startswith(said)
