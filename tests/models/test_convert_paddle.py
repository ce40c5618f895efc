"""The folder that comes of a PaddleNLP folder: files, config, tokenizer, types of numbers; whole or absent."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from paddle_checkpoints import LABELS, VOCABULARY, build_paddle, write_pickle
from tersely.models.convert import convert_paddle
from tersely.models.convert.paddle import write_safetensors
from tersely.models.folder import open_folder


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_folder_is_one_that_tersely_opens(tmp_path):
    build_paddle(tmp_path / "paddle", "ernie")
    convert_paddle(tmp_path / "paddle", tmp_path / "out")
    opened = open_folder(tmp_path / "out")
    assert (opened.task.name, opened.task.labels) == ("sequence_classification", LABELS)
    assert opened.task.max_seq_length == 20
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"config.json", "tersely_task.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"}
    assert set(read(tmp_path / "out", "tersely_task.json")["files"]) == files


def test_same_checkpoint_gives_same_bytes(tmp_path):
    build_paddle(tmp_path / "paddle", "electra")
    for name in ("one", "two"):
        convert_paddle(tmp_path / "paddle", tmp_path / name)
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert first == second != {}


def test_source_is_not_touched_and_an_earlier_result_is_replaced(tmp_path):
    build_paddle(tmp_path / "paddle", "bert")
    before = {path: path.read_bytes() for path in (tmp_path / "paddle").iterdir()}
    convert_paddle(tmp_path / "paddle", tmp_path / "out")
    convert_paddle(tmp_path / "paddle", tmp_path / "out", overwrite=True)
    assert before == {path: path.read_bytes() for path in (tmp_path / "paddle").iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == {"paddle", "out"}


def test_training_settings_and_labels_are_kept(tmp_path):
    build_paddle(tmp_path / "paddle", "bert", nested=True, hidden_dropout_prob=0.25, initializer_range=0.03)
    config = read(tmp_path / "paddle", "model_config.json")
    (tmp_path / "paddle" / "model_config.json").write_text(json.dumps({**config, "dropout": 0.5}))
    convert_paddle(tmp_path / "paddle", tmp_path / "out")
    config = read(tmp_path / "out", "config.json")
    assert (config["hidden_dropout_prob"], config["initializer_range"], config["classifier_dropout"]) == (
        0.25,
        0.03,
        0.5,
    )
    assert config["label2id"] == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}


def test_encoder_given_as_a_keyword_is_found(tmp_path):
    """`ErnieForTokenClassification(ernie=…)` puts the encoder's settings beside the head's."""
    build_paddle(tmp_path / "paddle", "ernie", "TokenClassification", nested=True)
    config = read(tmp_path / "paddle", "model_config.json")
    config["ernie"] = config.pop("init_args")[0]
    (tmp_path / "paddle" / "model_config.json").write_text(json.dumps({**config, "init_args": []}))
    assert convert_paddle(tmp_path / "paddle", tmp_path / "out").architecture == "ErnieForTokenClassification"
    assert read(tmp_path / "out", "config.json")["hidden_act"] == "relu"


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_becomes_float32_without_loss(kind, tmp_path):
    from safetensors.numpy import load_file

    arrays = build_paddle(tmp_path / "paddle", "bert")
    if kind == "float16":
        halves = {name: array.astype(np.float16) for name, array in arrays.items()}
        exact = {name: array.astype(np.float32) for name, array in halves.items()}
    else:  # Paddle's bfloat16 is uint16 in NumPy
        halves = {name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in arrays.items()}
        exact = {name: (array.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, array in arrays.items()}
    write_pickle(tmp_path / "paddle" / "model_state.pdparams", halves)
    convert_paddle(tmp_path / "paddle", tmp_path / "out")
    read_back = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(read_back["classifier.weight"], exact["classifier.weight"].T)
    words = "bert.embeddings.word_embeddings.weight"
    np.testing.assert_array_equal(read_back[words], exact[words])


def test_heads_of_pretraining_are_left_out_and_told(tmp_path):
    arrays = build_paddle(tmp_path / "paddle", "ernie", None)
    config = {**read(tmp_path / "paddle", "config.json"), "architectures": ["ErnieForPretraining"]}
    (tmp_path / "paddle" / "config.json").write_text(json.dumps(config))
    arrays = {f"ernie.{name}": array for name, array in arrays.items()}
    arrays["cls.predictions.transform.weight"] = np.zeros((16, 16), np.float32)
    write_pickle(tmp_path / "paddle" / "model_state.pdparams", arrays)
    done = convert_paddle(tmp_path / "paddle", tmp_path / "out")
    assert (done.architecture, done.left_out) == ("ErnieModel", ("cls.predictions.transform.weight",))


def test_rows_without_token_are_told(tmp_path):
    """A table may be larger than the vocabulary."""
    build_paddle(tmp_path / "paddle", "ernie", vocab_size=len(VOCABULARY) + 3)
    assert convert_paddle(tmp_path / "paddle", tmp_path / "out").rows_without_token == 3


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, "[CLS] a film ##s 今 天 [UNK] [SEP]"),
        ({"do_lower_case": True}, "[CLS] a film ##s 今 天 [UNK] [SEP]"),
        ({"do_lower_case": False}, "[CLS] [UNK] Film ##s 今 天 [UNK] [SEP]"),
        ({"do_lower_case": False, "unk_token": "[MASK]"}, "[CLS] [MASK] Film ##s 今 天 [MASK] [SEP]"),
        ({"cls_token": {"__type": "AddedToken", "content": "[SEP]"}}, "[SEP] a film ##s 今 天 [UNK] [SEP]"),
    ],
)
@pytest.mark.parametrize("family", ["ernie", "roberta"])
def test_tokenizer_splits_as_its_settings_say(family, settings, tokens, tmp_path):
    from transformers import AutoTokenizer

    build_paddle(tmp_path / "paddle", family)
    if settings:
        (tmp_path / "paddle" / "tokenizer_config.json").write_text(json.dumps(settings))
    convert_paddle(tmp_path / "paddle", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.convert_ids_to_tokens(tokenizer("A Films 今天 xyz")["input_ids"]) == tokens.split()
    assert tokenizer.model_max_length == (19 if family == "roberta" else 20)
    assert (tokenizer.pad_token_id, len(tokenizer)) == (0, len(VOCABULARY))


def test_byte_level_tokenizer_of_roberta_is_taken(tmp_path):
    from transformers import AutoTokenizer

    folder = tmp_path / "paddle"
    build_paddle(folder, "roberta", cls_token_id=0, pad_token_id=1)
    (folder / "vocab.txt").unlink()
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "c", "Ġ", "ab", "Ġa", "x"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\na b\nĠ a\n")
    convert_paddle(folder, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.convert_ids_to_tokens(tokenizer("abc a")["input_ids"]) == ["<s>", "ab", "c", "Ġa", "</s>"]
    assert open_folder(tmp_path / "out").task.max_seq_length == 18


def test_what_is_written_is_what_safetensors_reads(tmp_path):
    from safetensors.numpy import load_file

    draw = np.random.default_rng(1)
    tensors = {"b.weight": draw.normal(size=(3, 5)), "a": draw.normal(size=4), "单": draw.normal(size=(1, 2, 3))}
    tensors = {name: array.astype(np.float32) for name, array in tensors.items()} | {
        "none": np.zeros((0, 2), np.float32)
    }
    write_safetensors(tmp_path / "m.safetensors", {k: v.shape for k, v in tensors.items()}, tensors.__getitem__)
    found = load_file(tmp_path / "m.safetensors")
    assert set(found) == set(tensors)
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array)


def test_base_install_converts(tmp_path):
    """Without torch, transformers, safetensors or Paddle."""
    build_paddle(tmp_path / "paddle", "bert")
    code = f"""
import sys
for name in ("torch", "transformers", "safetensors", "paddle"):
    sys.modules[name] = None
from tersely.cli import main
sys.exit(main(["convert", "--from_paddle", {str(tmp_path / "paddle")!r}, "--output_dir", {str(tmp_path / "out")!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "model.safetensors").is_file()
