"""Datasets in memory, and parquet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from refusals import refusal
from tersely.data import from_dataset, read
from tersely.errors import UserError

datasets = pytest.importorskip("datasets")
FEATURES = datasets.Features(
    {
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["bad", "good"]),
        "tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER"])),
    }
)
COLUMNS = {"text": ["x", "y", "z"], "label": [1, 0, -1], "tags": [[0, 1], [], [1]]}
EXPECTED = (
    {"text": "x", "label": "good", "tags": ["O", "B-PER"]},
    {"text": "y", "label": "bad", "tags": []},
    {"text": "z", "label": None, "tags": ["B-PER"]},
)


def test_dataset_gives_names_in_place_of_class_numbers():
    rows = from_dataset(datasets.Dataset.from_dict(COLUMNS, features=FEATURES))
    assert rows.records == EXPECTED
    assert rows.columns == ("text", "label", "tags")
    assert rows.where(2) == "dataset:3"


def test_dataset_in_a_tensor_format_gives_plain_values():
    dataset = datasets.Dataset.from_dict({"text": ["a"], "label": [3]}).with_format("numpy")
    (record,) = from_dataset(dataset).records
    assert record == {"text": "a", "label": 3}
    assert type(record["label"]) is int
    assert dataset.format["type"] == "numpy"


def test_sequence_of_dicts_is_taken_as_it_is():
    rows = from_dataset([{"text": "a"}, {"text": "b", "label": 1}])
    assert rows.records == ({"text": "a", "label": None}, {"text": "b", "label": 1})


def test_bad_objects_are_refused():
    assert refusal(from_dataset, []) == "dataset: The dataset holds no rows."
    assert refusal(from_dataset, [{"text": "a"}, "b"]) == "dataset:2: The row is not a dict but str."
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})})
    assert refusal(from_dataset, splits) == "dataset: This is a mapping, not a dataset. Its keys: train. Pick a split."


def test_parquet_reads_like_the_dataset_that_wrote_it(tmp_path):
    file = tmp_path / "a.parquet"
    datasets.Dataset.from_dict(COLUMNS, features=FEATURES).to_parquet(file)
    rows = read(file)
    assert rows.records == EXPECTED
    assert rows.lines == (1, 2, 3)


def test_parquet_of_others_is_read_without_class_names(tmp_path):
    import pyarrow
    from pyarrow import parquet

    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a", "b"], "label": [1, 0]}), file)
    assert read(file).records == ({"text": "a", "label": 1}, {"text": "b", "label": 0})
    parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), file)
    with pytest.raises(UserError, match="The file holds no rows"):
        read(file)


def test_spoilt_parquet_is_refused(tmp_path):
    file = tmp_path / "a.parquet"
    for content, said in ((b"text,label\n", "The file is not parquet."), (b"PAR1 and no more", "cannot be read")):
        file.write_bytes(content)
        with pytest.raises(UserError, match=said) as caught:
            read(file)
        assert caught.value.where == str(file)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    file: Path = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match='pip install "accelerate>='):
        read(file)
