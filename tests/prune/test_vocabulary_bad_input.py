"""What cannot be cut is refused by name, before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from models import SENTENCES, build
from tersely.errors import UserError
from tersely.models.folder import ModelFolder, open_folder
from tersely.prune.vocabulary import prune_vocabulary
from tersely.tasks import Encoder


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """Prune, expect a refusal and give its words; nothing may have been written."""

    def attempt(folder: ModelFolder, texts: Any = SENTENCES, **options: Any) -> str:
        with pytest.raises(UserError) as caught:
            prune_vocabulary(folder, folder.task.examples(texts), tmp_path / "out" / "cut", **options)
        assert not list((tmp_path / "out").glob("*"))
        return str(caught.value)

    return attempt


@pytest.fixture
def model(model_folder: Callable[..., Path]) -> ModelFolder:
    return open_folder(model_folder())


def test_no_rows(refused, model):
    assert "no training rows" in refused(model, [])


@pytest.mark.parametrize("size", [0, -1])
def test_a_vocabulary_of_no_size(refused, model, size):
    assert f"'max_vocab_size' option must be at least 1. Got {size}." in refused(model, max_vocab_size=size)


def test_a_vocabulary_without_room_for_special_tokens(refused, model):
    assert "'max_vocab_size' option is 4, but 5 tokens always stay" in refused(model, max_vocab_size=4)


def test_a_byte_level_vocabulary_without_room_for_bytes(refused, model_folder):
    assert "always stay" in refused(open_folder(model_folder(family="roberta")), max_vocab_size=200)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_more_positions_than_there_are(refused, model_folder, family):
    said = refused(open_folder(model_folder(family=family)), max_seq_length=97)
    assert "'max_seq_length' option is 97, but the model has 96 positions" in said


@pytest.mark.parametrize("length", [0, -3])
def test_no_positions(refused, model, length):
    assert f"'max_seq_length' option must be at least 1. Got {length}." in refused(model, max_seq_length=length)


def test_no_room_between_special_tokens(refused, model):
    assert "special tokens take 2" in refused(model, max_seq_length=2)


def test_a_tokenizer_of_another_kind(refused, model):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    encoder = Encoder(Tokenizer(WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]")), 0)
    said = refused(ModelFolder(model.path, model.config, model.task, encoder))
    assert said.startswith(f"{model.path}: A WordLevel tokenizer cannot be cut; WordPiece, Unigram, BPE can.")


def test_a_tokenizer_class_that_numbers_by_itself(refused, tmp_path):
    """XLM-R's takes number 3 for the unknown token, wherever that stands."""
    folder = build(tmp_path / "model", "albert", layers=1, vocab_size=140)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"] = [["unused1", -9.0], ["unused2", -9.0], *content["model"]["vocab"]]
    content["model"]["unk_id"] += 2
    for token in content["added_tokens"]:
        token["id"] += 2
    for token in content["post_processor"]["special_tokens"].values():
        token["ids"] = [token["ids"][0] + 2]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "XLMRobertaTokenizer", "bos_token": "[CLS]", "eos_token": "[SEP]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert "'XLMRobertaTokenizer' reads the smaller vocabulary otherwise" in refused(open_folder(folder))


def test_a_table_that_nobody_knows(refused, tmp_path):
    folder = build(tmp_path / "model", layers=1)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    size = len(tensors["bert.embeddings.word_embeddings.weight"])
    safetensors.torch.save_file(tensors | {"glyphs": torch.zeros(3, size)}, folder / "model.safetensors")
    assert f"'glyphs' [3, {size}] has the vocabulary's size" in refused(open_folder(folder))


def test_a_config_that_does_not_fit_the_weights(refused, tmp_path):
    folder = build(tmp_path / "model", layers=1)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 500}))
    assert "with 500 rows is expected" in refused(open_folder(folder))
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 300}))
    assert "has 96 positions, the config says 300" in refused(open_folder(folder))


def test_no_weights_and_damaged_weights(refused, tmp_path):
    folder = build(tmp_path / "model", layers=1)
    (folder / "model.safetensors").write_bytes(b"nothing")
    assert "weights cannot be read" in refused(open_folder(folder))
    (folder / "model.safetensors").unlink()
    assert "has no weights" in refused(open_folder(folder))


def test_an_output_that_is_taken(model, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(UserError, match="not empty"):
        prune_vocabulary(model, model.task.examples(SENTENCES), tmp_path)
