"""Names to folders, splits to files."""

from __future__ import annotations

import pytest

from tersely.data import find_split, locate, read, read_dataset, split_file
from tersely.errors import UserError


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("clue tnews", "tnews"),
        ("tnews", "clue/tnews"),
        ("clue cmrc2018", "cmrc2018"),
        ("glue mrpc", "glue/MRPC"),
        ("msra_ner", "msra_ner"),
        ("msra-ner", "msra_ner"),
        ("ocnli", "ocnli_public"),
    ],
)
def test_name_is_found_in_the_data_folder_or_the_variable(tmp_path, monkeypatch, name, folder):
    (tmp_path / folder).mkdir(parents=True)
    assert locate(name, tmp_path) == tmp_path / folder
    monkeypatch.setenv("TERSELY_DATA", str(tmp_path))
    assert locate(name) == tmp_path / folder
    assert locate(str(tmp_path / folder)) == tmp_path / folder


def test_unknown_name_tells_where_it_looked_and_what_to_do(tmp_path):
    with pytest.raises(UserError) as caught:
        locate("clue tnews", tmp_path)
    said = str(caught.value)
    for part in (
        str(tmp_path),
        str(tmp_path / "clue"),
        "Nothing is downloaded",
        str(tmp_path / "tnews"),
        "TERSELY_DATA",
    ):
        assert part in said
    with pytest.raises(UserError, match="Did you mean 'msra_ner'"):
        locate("msra_nre", tmp_path)


@pytest.mark.parametrize(
    ("files", "split", "expected"),
    [
        (["train.tsv", "dev.tsv"], "dev", "dev.tsv"),
        (["train.json", "valid.json"], "dev", "valid.json"),
        (["train.json", "validation.csv"], "validation", "validation.csv"),
        (["dev.json", "dev_500.json", "labels.json"], "dev", "dev.json"),
        (["dev_matched.tsv", "dev_mismatched.tsv"], "dev", "dev_matched.tsv"),
        (["train.3k.json", "train.50k.json"], "train", "train.50k.json"),
        (["train-v1.1.json", "dev-v1.1.json"], "train", "train-v1.1.json"),
        (["cmrc2018_train.json"], "train", "cmrc2018_train.json"),
        (["train-00000-of-00001.parquet"], "train", "train-00000-of-00001.parquet"),
        (["train.md", "train.txt"], "train", "train.txt"),
    ],
)
def test_split_is_found_by_its_usual_names(tmp_path, files, split, expected):
    for name in files:
        (tmp_path / name).write_text("x")
    assert split_file(tmp_path, split) == tmp_path / expected


def test_split_that_is_not_there_or_not_clear_is_refused(tmp_path):
    for name in ("train.csv", "train.tsv", "notes.txt"):
        (tmp_path / name).write_text("x")
    for split, said in (
        ("train", "Several files could be the train split: train.csv, train.tsv."),
        ("test", "There is no test file (test.*). Here: notes.txt, train.csv, train.tsv."),
        ("tset", "There is no split 'tset'. Did you mean 'test'?"),
    ):
        with pytest.raises(UserError) as caught:
            split_file(tmp_path, split)
        assert str(caught.value).startswith(f"{tmp_path}: {said}")
    for find in (split_file, find_split):
        with pytest.raises(UserError, match="There is no such folder"):
            find(tmp_path / "no", "train")


def test_split_may_be_asked_for_that_is_not_there(tmp_path):
    (tmp_path / "valid.csv").write_text("x")
    assert find_split(tmp_path, "train") is None
    assert find_split(tmp_path, "dev") == tmp_path / "valid.csv"
    (tmp_path / "valid.tsv").write_text("x")
    with pytest.raises(UserError, match="Several files could be the dev split"):
        find_split(tmp_path, "dev")


def test_folder_of_the_users_own_is_read_by_split(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\ngood,1\n")
    expected = ({"text": "good", "label": "1"},)
    assert read(tmp_path, split="train").records == read_dataset(str(tmp_path), "train").records == expected
