"""Bad checkpoints: exit code 2, one line that says what, where and what to do; nothing is written."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paddle_checkpoints import arrays_of, build_paddle, settings_of, write_pickle
from tersely.cli import main


def config(**changes):
    """Change entries of config.json; None takes one out."""

    def change(folder: Path) -> None:
        content = {**json.loads((folder / "config.json").read_text()), **changes}
        kept = {key: value for key, value in content.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return change


def arrays(**changes):
    """Change arrays; None takes one out. Names are written with __ for a dot."""

    def change(folder: Path) -> None:
        family = json.loads((folder / "config.json").read_text())["model_type"]
        content = arrays_of(family, "SequenceClassification", settings_of(family))
        for name, array in changes.items():
            content[name.replace("__", ".")] = array
        write_pickle(
            folder / "model_state.pdparams", {key: value for key, value in content.items() if value is not None}
        )

    return change


def file(name: str, content: str | bytes | None):
    """Replace a file; None removes it."""

    def change(folder: Path) -> None:
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return change


def both(*changes: Callable[[Path], None]):
    def change(folder: Path) -> None:
        for apply in changes:
            apply(folder)

    return change


def cut(folder: Path) -> None:
    place = folder / "model_state.pdparams"
    place.write_bytes(place.read_bytes()[:-100])


CONFIG, STATE, TOKENIZER = "config.json", "model_state.pdparams", "tokenizer_config.json"
ZEROS = np.zeros((3, 3), np.float32)
WORDS = "ernie.embeddings.word_embeddings.weight"
FULL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

# Family, what is done to the folder, the file that is named, what is said, and what to do.
CASES = {
    "no config": (
        "ernie",
        file("config.json", None),
        "",
        "neither config.json nor model_config.json",
        "save_pretrained",
    ),
    "no weights": ("ernie", file("model_state.pdparams", None), "", "has no model_state.pdparams", "save_pretrained"),
    "no vocabulary": (
        "ernie",
        file("vocab.txt", None),
        "",
        "The folder has no vocab.txt.",
        "Copy the tokenizer's files",
    ),
    "config is not JSON": ("ernie", file(CONFIG, "{"), CONFIG, "is not JSON", "Copy it anew"),
    "config is a list": ("ernie", file(CONFIG, "[]"), CONFIG, "must hold an object. Got list", ""),
    "truncated": ("ernie", cut, STATE, "cannot be read", "cut short"),
    "empty": ("ernie", file("model_state.pdparams", b""), STATE, "cannot be read", "cut short"),
    "a graph": (
        "ernie",
        both(file("model_state.pdparams", None), file("m.pdmodel", "")),
        "",
        ".pdmodel",
        "paddle2onnx",
    ),
    "no class": ("ernie", config(architectures=None), CONFIG, "which class the model is", "Add it"),
    "unknown class": ("ernie", config(architectures=["GPTModel"]), CONFIG, "The class 'GPTModel' is", "Known: Ernie"),
    "unknown head": (
        "ernie",
        config(architectures=["ErnieForMultipleChoice"]),
        CONFIG,
        "'ErnieForMultipleChoice' is",
        "Known",
    ),
    "ERNIE-M": ("ernie", config(architectures=["ErnieMForSequenceClassification"]), CONFIG, "ERNIE-M (", "paddle2onnx"),
    "ERNIE-Gram": (
        "ernie",
        config(architectures=["ErnieGramModel"]),
        CONFIG,
        "ERNIE-Gram ('ErnieGramModel') is not offered",
        "paddle2onnx",
    ),
    "vocabulary too long": (
        "ernie",
        file("vocab.txt", FULL + "a\n" * 20),
        "vocab.txt",
        "up to 24, the model's table has 14 rows",
        "do not belong",
    ),
    "vocabulary lacks a role": (
        "ernie",
        file("vocab.txt", "[PAD]\n[UNK]\n"),
        "vocab.txt",
        "lacks the sep token '[SEP]'",
        TOKENIZER,
    ),
    "vocabulary is not UTF-8": ("ernie", file("vocab.txt", b"\xff\xfe\n"), "vocab.txt", "not UTF-8", "Copy it anew"),
    "added tokens": (
        "ernie",
        file("added_tokens.json", '{"x": 14}'),
        "added_tokens.json",
        "Tokens were added",
        "vocab.txt",
    ),
    "tokenizer of ernie-tiny": (
        "ernie",
        file(TOKENIZER, '{"tokenizer_class": "ErnieTinyTokenizer"}'),
        TOKENIZER,
        "ErnieTinyTokenizer",
        "WordPiece",
    ),
    "no basic tokenizer": (
        "bert",
        file(TOKENIZER, '{"do_basic_tokenize": false}'),
        TOKENIZER,
        "'do_basic_tokenize' must",
        "Change",
    ),
    "no merges": ("roberta", both(file("vocab.txt", None), file("vocab.json", "{}")), "", "no merges.txt", "Copy it"),
    "size in the config": (
        "ernie",
        config(vocab_size=20),
        CONFIG,
        "'vocab_size' is 20, the arrays say 14",
        "not of one model",
    ),
    "layers in the config": (
        "ernie",
        config(num_hidden_layers=3),
        CONFIG,
        "'num_hidden_layers' is 3, the arrays say 2",
        "not of one model",
    ),
    "array of another shape": (
        "ernie",
        arrays(ernie__encoder__layers__1__linear2__weight=ZEROS),
        STATE,
        "linear2.weight' must have the shape [24, 16]. Got [3, 3].",
        "save it anew",
    ),
    "table that is no matrix": (
        "ernie",
        arrays(**{WORDS: ZEROS[0]}),
        STATE,
        "must be a matrix. Got the shape [3]",
        "save it anew",
    ),
    "missing array": (
        "ernie",
        arrays(ernie__encoder__layers__1__norm2__bias=None),
        STATE,
        "lacks 'ernie.encoder.layers.1.norm2.bias', which ErnieFor",
        "Check",
    ),
    "missing table": ("ernie", arrays(**{WORDS: None}), STATE, f"lacks '{WORDS}'", "Check"),
    "missing classifier": ("ernie", arrays(classifier__weight=None), STATE, "lacks 'classifier.weight'", "Check"),
    "unknown array": (
        "ernie",
        arrays(linear_start__weight=ZEROS),
        STATE,
        "holds 'linear_start.weight', for which ErnieFor",
        "Check the class",
    ),
    "numbers of another type": (
        "ernie",
        arrays(classifier__bias=np.zeros(3, np.int64)),
        STATE,
        "'classifier.bias' must be of type float32, float16 or bfloat16. Got int64",
        "Save",
    ),
    "labels and classifier": (
        "ernie",
        config(id2label={"0": "a", "1": "b"}),
        CONFIG,
        "must name the labels 0 to 2",
        "every label",
    ),
    "labels without numbers": (
        "ernie",
        config(id2label=["a", "b", "c"]),
        CONFIG,
        "must name the labels 0 to 2",
        "every label",
    ),
    "heads do not divide": (
        "ernie",
        config(num_attention_heads=5),
        CONFIG,
        "must divide the hidden size 16. Got 5",
        "trained with",
    ),
    "unknown activation": (
        "ernie",
        config(hidden_act="mish"),
        CONFIG,
        "'hidden_act' must be one of gelu",
        "transformers",
    ),
    "padding outside": (
        "bert",
        config(pad_token_id=14),
        CONFIG,
        "'pad_token_id' must be a row of the table",
        "trained",
    ),
    "epsilon in words": (
        "bert",
        config(layer_norm_eps="x"),
        CONFIG,
        "'layer_norm_eps' must be a number. Got 'x'",
        "1e-12",
    ),
    "another task": ("ernie", config(task_id=2), CONFIG, "'task_id' must be 0", "anew"),
    "another pooler": ("bert", config(pool_act="relu"), CONFIG, "'pool_act' must be 'tanh'", "anew"),
    "activation of the head": ("electra", config(hidden_act="relu"), CONFIG, "must be 'gelu'", "anew"),
}


def convert(capsys, folder, output):
    before = set(folder.parent.rglob("*"))
    code = main(["convert", "--from_paddle", str(folder), "--output_dir", str(output)])
    caught = capsys.readouterr()
    assert (code, caught.out) == (2, ""), caught.err
    assert caught.err.count("\n") == 1
    assert "a bug" not in caught.err
    assert set(folder.parent.rglob("*")) == before
    return caught.err


@pytest.mark.parametrize("case", CASES)
def test_bad_checkpoint_is_named(case, capsys, tmp_path):
    family, change, where, said, todo = CASES[case]
    build_paddle(tmp_path / "paddle", family)
    change(tmp_path / "paddle")
    err = convert(capsys, tmp_path / "paddle", tmp_path / "out")
    assert err.startswith(f"tersely: {(tmp_path / 'paddle' / where) if where else tmp_path / 'paddle'}: ")
    assert said in err
    assert todo in err.partition(said)[2]


def test_no_such_folder(capsys, tmp_path):
    assert f"{tmp_path / 'none'}: There is no such folder." in convert(capsys, tmp_path / "none", tmp_path / "out")


def test_a_file_in_place_of_a_folder(capsys, tmp_path):
    build_paddle(tmp_path / "paddle", "bert")
    weights = tmp_path / "paddle" / "model_state.pdparams"
    assert "A folder is expected" in convert(capsys, weights, tmp_path / "out")
    graph = tmp_path / "graph.pdmodel"
    graph.write_bytes(b"")
    assert "paddle2onnx" in convert(capsys, graph, tmp_path / "out")


def test_output_folder_that_is_not_empty(capsys, tmp_path):
    build_paddle(tmp_path / "paddle", "bert")
    assert "exists and is not empty" in convert(capsys, tmp_path / "paddle", tmp_path / "paddle")


def test_arguments_without_names_are_refused(capsys, tmp_path):
    build_paddle(tmp_path / "paddle", "bert", nested=True)
    place = tmp_path / "paddle" / "model_config.json"
    content = json.loads(place.read_text())
    content["init_args"][0]["init_args"] = [14, 16]
    place.write_text(json.dumps(content))
    err = convert(capsys, tmp_path / "paddle", tmp_path / "out")
    assert f"{place}: The config gives BertModel arguments without names" in err


def test_roberta_encoder_of_an_unknown_version_is_not_guessed(capsys, tmp_path):
    build_paddle(tmp_path / "paddle", "roberta", None)
    config(paddlenlp_version=None)(tmp_path / "paddle")
    err = convert(capsys, tmp_path / "paddle", tmp_path / "out")
    assert "positions begin with 0 up to PaddleNLP 2.4" in err
    assert '"paddlenlp_version": "2.6.1"' in err


def test_hostile_checkpoint_is_refused_by_the_command(capsys, tmp_path):
    class Touch:
        def __reduce__(self):
            return Path.touch, (tmp_path / "proof",)

    build_paddle(tmp_path / "paddle", "bert")
    (tmp_path / "paddle" / "model_state.pdparams").write_bytes(pickle.dumps({"weight": Touch()}))
    assert "it was not executed" in convert(capsys, tmp_path / "paddle", tmp_path / "out")
    assert not (tmp_path / "proof").exists()
