"""Bad input, case by case: exit code 2, one line that says what and where, nothing written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from commands import Tersely
from learnable import single, split, tiny, tsv
from sealing import rewrite

Folder = Callable[..., Path]
GOOD = "text\tlabel\nthe dark river\tbad\na film of grace\tgood\n"

# What the file holds, its name, and what must be said (`{}` is the file's path).
FILES = {
    "empty": (b"", "rows.tsv", "{}: "),
    "header only": (b"text\tlabel\n", "rows.tsv", "{}: The file has a header but no rows."),
    "missing column": (b"text\tmark\nfine\tgood\n", "rows.tsv", "{}: There is no label column. Columns here: text,"),
    "no text column": (b"said\tlabel\nfine\tgood\nsad\tbad\n", "rows.tsv", "{}: There is no text column. Columns"),
    "label not in the set": (b"text\tlabel\nfine\tgood\nfine\tgreat\n", "rows.tsv", "{}:3: The label 'great' is not"),
    "too many fields": (b"text\tlabel\nfine\tgood\nfine\tgood\tmore\n", "rows.tsv", "{}:3: "),
    "too few fields": (b"text,label\nfine,good\nfine\n", "rows.csv", "{}:3: "),
    "not utf-8": (b"text\tlabel\nfine\tgood\n\xff\xfe\tgood\n", "rows.tsv", "{}:3: "),
    "text is none": (b'{"text": "a", "label": "good"}\n{"text": null, "label": "bad"}\n', "rows.jsonl", "{}:2: "),
    "text is a number": (b'{"text": "a", "label": "good"}\n{"text": 4, "label": "bad"}\n', "rows.jsonl", "{}:2: "),
    "broken json": (b'{"text": "a", "label": "good"}\n{"text": \n', "rows.jsonl", "{}:2:1: The json is corrupt"),
    "label is nothing": (b'{"text": "a", "label": "good"}\n{"text": "b", "label": null}\n', "rows.jsonl", "{}:2: "),
    "label is a list": (b'{"text": "a", "label": "good"}\n{"text": "b", "label": ["bad"]}\n', "rows.jsonl", "{}:2: "),
    "unknown suffix": (b"text\tlabel\n", "rows.xyz", "{}: The suffix '.xyz' is not known."),
}  # fmt: skip


def check(shown: Any, said: str, folder: Path, before: set[Path]) -> None:
    assert (shown.code, shown.out) == (2, ""), shown.err
    assert shown.err.startswith("tersely: ")
    assert shown.err.count("\n") == 1
    assert said in shown.err
    assert "a bug" not in shown.err
    assert set(folder.rglob("*")) == before


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("command", ["evaluate", "finetune", "export"])
def test_bad_rows_are_named(command: str, case: str, tersely: Tersely, model_folder: Folder, tmp_path: Path) -> None:
    content, name, said = FILES[case]
    file = tmp_path / name
    file.write_bytes(content)
    words: list[Any] = [command, "--model_name_or_path", model_folder(), "--eval_file", file]
    if command != "evaluate":
        words += ["--output_dir", tmp_path / "out"]
    if command == "finetune":
        good = tmp_path / "train.tsv"
        good.write_text(GOOD)
        words += ["--train_file", good]
    before = set(tmp_path.rglob("*"))
    check(tersely(*words), said.format(file), tmp_path, before)


@pytest.mark.parametrize("case", [name for name in FILES if name != "label not in the set"])
def test_bad_training_rows_are_named(case: str, tersely: Tersely, model_folder: Folder, tmp_path: Path) -> None:
    content, name, said = FILES[case]
    file = tmp_path / name
    file.write_bytes(content)
    good = tmp_path / "dev.tsv"
    good.write_text(GOOD)
    before = set(tmp_path.rglob("*"))
    words: list[Any] = ["finetune", "--model_name_or_path", model_folder(), "--task", "sequence_classification"]
    words += ["--train_file", file, "--eval_file", good, "--output_dir", tmp_path / "out"]
    check(tersely(*words), said.format(file), tmp_path, before)


QUESTION = {"id": "q7", "question": "what", "answers": [{"text": "paris", "answer_start": 0}]}
OTHERS = {
    "words without tags": ("TokenClassification", "rows.conll", "paris\n\nold\n", "{}: There are words but no tags."),
    "tag not in the set": ("TokenClassification", "rows.conll", "paris B-LOC\n\nold B-ORG\n", "{}:3: The tag 'B-ORG'"),
    "more tags than words": (
        "TokenClassification", "rows.jsonl", json.dumps({"words": ["a"], "tags": ["O", "O"]}), "{}:1: There must be",
    ),
    "answer not at its offset": (
        "QuestionAnswering", "rows.json",
        json.dumps({"data": [{"paragraphs": [{"context": "berlin is old", "qas": [QUESTION]}]}]}), "Question 'q7'",
    ),
    "question without answers": (
        "QuestionAnswering", "rows.json",
        json.dumps({"data": [{"paragraphs": [{"context": "berlin", "qas": [{"id": "q", "question": "what"}]}]}]}),
        "There is no column of answers.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_bad_rows_of_other_tasks_are_named(case: str, tersely: Tersely, model_folder: Folder, tmp_path: Path) -> None:
    head, name, content, said = OTHERS[case]
    file = tmp_path / name
    file.write_text(content)
    shown = tersely("evaluate", "--model_name_or_path", model_folder(head), "--eval_file", file)
    check(shown, said.format(file), tmp_path, {file})


def without(folder: Path, name: str) -> None:
    (folder / name).unlink()


def not_a_number(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.embeddings.word_embeddings.weight"][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def bigger_tokenizer(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 10}))


def of_no_family(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "perceptron"}))


MODELS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda folder: without(folder, "config.json"), "The model folder has no config.json."),
    "no weights": (lambda folder: without(folder, "model.safetensors"), "model.safetensors"),
    "no tokenizer": (lambda folder: without(folder, "tokenizer.json"), "The model folder has no tokenizer."),
    "config is not json": (lambda folder: (folder / "config.json").write_text("{") and None, "The config is not JSON"),
    "weights cut off": (
        lambda folder: (folder / "model.safetensors").write_bytes(b"\x08" * 40) and None,
        "The model cannot be loaded",
    ),
    "weights not numbers": (not_a_number, "word_embeddings.weight' holds NaN."),
    "tokenizer of another": (bigger_tokenizer, "they do not belong together."),
    "unknown family": (of_no_family, "perceptron"),
    "gone": (lambda folder: shutil.rmtree(folder), "There is no such"),
}


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("command", ["evaluate", "finetune", "export", "predict", "benchmark"])
def test_bad_model_folder_is_named(
    command: str, case: str, tersely: Tersely, model_folder: Folder, tmp_path: Path
) -> None:
    damage, said = MODELS[case]
    folder = Path(shutil.copytree(model_folder(), tmp_path / "model"))
    damage(folder)
    rows = tmp_path / "rows.tsv"
    rows.write_text(GOOD)
    words: dict[str, list[Any]] = {
        "evaluate": ["--model_name_or_path", folder, "--eval_file", rows],
        "finetune": ["--model_name_or_path", folder, "--train_file", rows, "--eval_file", rows, "--task",
                     "sequence_classification", "--output_dir", tmp_path / "out", "--max_steps", "1"],
        "export": ["--model_name_or_path", folder, "--output_dir", tmp_path / "out"],
        "predict": [folder, rows],
        "benchmark": [folder, "--engines", "torch", "--lengths", "8", "--threads", "1"],
    }  # fmt: skip
    before = set(tmp_path.rglob("*"))
    shown = tersely(command, *words[command])
    check(shown, said, tmp_path, before)
    assert str(folder) in shown.err


@pytest.mark.parametrize("option", ["--batch_size", "--threads"])
@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_numbers_below_one_are_refused(
    command: str, option: str, tersely: Tersely, model_folder: Folder, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text(GOOD)
    words: list[Any] = [model_folder(), rows]
    if command == "evaluate":
        words = ["--model_name_or_path", model_folder(), "--eval_file", rows]
    check(tersely(command, *words, option, "0"), "must be at least 1. Got", tmp_path, {rows})


OPTIONS = {
    "no rows": ([], "The '--eval_file' option is needed."),
    "no such file": (["--eval_file", "none.tsv"], "none.tsv: There is no such file."),
    "no such engine": (["--eval_file", "{}", "--engine", "onxruntime"], "Did you mean 'onnxruntime'?"),
    "no such second model": (["--eval_file", "{}", "--against", "none"], "none: There is no such folder."),
    "engine of no second model": (
        ["--eval_file", "{}", "--against_engine", "torch"],
        "The '--against_engine' option has no effect without --against.",
    ),
    "option of another task": (["--eval_file", "{}", "--n_best_size", "3"], "The '--n_best_size' option has no effect"),
    "another task": (["--eval_file", "{}", "--task", "question_answering"], "(option '--task')"),
    "header of json": (["--eval_file", "{}", "--header", "perhaps"], "expected true or false, got 'perhaps'"),
    "column that is not there": (["--eval_file", "{}", "--text_column", "txt"], "There is no column 'txt'"),
    "data set that is not there": (["--dataset", "tnewz"], "There is no data set 'tnewz'"),
    "not a number": (["--eval_file", "{}", "--threads", "two"], "--threads"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options_are_named(case: str, tersely: Tersely, model_folder: Folder, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text(GOOD)
    words, said = OPTIONS[case]
    paths = [word.format(rows) for word in words]
    check(tersely("evaluate", "--model_name_or_path", model_folder(), *paths), said, tmp_path, {rows})


def test_head_that_does_not_fit_the_rows_is_said(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    words = ["evaluate", "--model_name_or_path", model_folder(), "--eval_file", files["question"]]
    check(tersely(*words), f"{files['question']}", tmp_path, set())


@pytest.mark.parametrize("command", ["finetune", "export"])
@pytest.mark.parametrize("place", ["file", "under a file", "full folder"])
def test_output_that_cannot_be_written_is_refused_before_work(
    place: str, command: str, tersely: Tersely, model_folder: Folder, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text(GOOD)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    output = {"file": rows, "under a file": rows / "out", "full folder": tmp_path / "full"}[place]
    words: list[Any] = [command, "--model_name_or_path", model_folder(), "--output_dir", output, "--eval_file", rows]
    if command == "finetune":
        words += ["--train_file", rows]
    before = set(tmp_path.rglob("*"))
    for more in ([], ["--overwrite_output_dir"]):
        check(tersely(*words, *more), "output folder", tmp_path, before)


@pytest.mark.parametrize("place", ["folder", "nowhere/out.jsonl", "rows.tsv/out.jsonl"])
def test_answers_that_cannot_be_written_are_refused(
    place: str, tersely: Tersely, model_folder: Folder, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text(GOOD)
    (tmp_path / "folder").mkdir()
    before = set(tmp_path.rglob("*"))
    check(
        tersely("predict", model_folder(), rows, "--output", tmp_path / place), "(option '--output')", tmp_path, before
    )


def test_column_option_without_a_file_is_refused(tersely: Tersely, model_folder: Folder, tmp_path: Path) -> None:
    shown = tersely("predict", model_folder(), "--text_column", "x", stdin="fine\n")
    check(shown, "The '--text_column' option has no effect without FILE.", tmp_path, set())


def damaged_byte(folder: Path) -> None:
    graph = folder / "onnx" / "model.onnx"
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(bytes(content))


def newer_format(folder: Path) -> None:
    rewrite(folder, format_version=99)


def changed_manifest(folder: Path) -> None:
    manifest = folder / "tersely.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"good"', b'"food"'))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damaged_byte, "onnx/model.onnx"),
        (newer_format, "99"),
        (changed_manifest, "tersely.json: The manifest has changed since it was written."),
        (lambda folder: without(folder, "tokenizer.json"), "tokenizer.json"),
    ],
    ids=["changed byte", "newer format", "changed manifest", "missing file"],
)
@pytest.mark.parametrize("command", ["evaluate", "predict", "benchmark"])
def test_damaged_artifact_is_refused(
    command: str, damage: Callable[[Path], None], said: str, tersely: Tersely, own_artifact: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text(GOOD)
    damage(own_artifact)
    words: dict[str, list[Any]] = {
        "evaluate": ["--model_name_or_path", own_artifact, "--eval_file", rows],
        "predict": [own_artifact, rows],
        "benchmark": [own_artifact, "--lengths", "8", "--threads", "1", "--engines", "onnxruntime"],
    }
    before = set(tmp_path.rglob("*"))
    check(tersely(command, *words[command]), said, tmp_path, before)


def test_finetune_without_a_task_on_a_bare_encoder_says_what_to_do(tersely: Tersely, tmp_path: Path) -> None:
    train, dev = split(tmp_path, single, tsv, "tsv")
    encoder = tiny(tmp_path / "encoder")
    config = json.loads((encoder / "config.json").read_text())
    (encoder / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    before = set(tmp_path.rglob("*"))
    words = ["finetune", "--model_name_or_path", encoder, "--train_file", train, "--eval_file", dev]
    check(tersely(*words, "--output_dir", tmp_path / "out"), "--task", tmp_path, before)
