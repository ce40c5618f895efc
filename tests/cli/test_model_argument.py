"""Every command takes its model as a word of its own, or with --model_name_or_path, and replaces with --overwrite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commands import Tersely
from tersely.cli import arguments, parser_of
from tersely.cli.compress import prepare

MORE: dict[str, list[str]] = {
    "compress": ["--output_dir", "out", "--strategy", "ptq", "--seed", "1"],
    "finetune": ["--output_dir", "out", "--seed", "1"],
    "convert": ["--output_dir", "out", "--json"],
    "export": ["--output_dir", "out", "--input_dtype", "int64"],
    "evaluate": ["--eval_file", "rows.tsv", "--threads", "1"],
    "benchmark": ["--seconds", "1", "--lengths", "8", "--json"],
    "predict": ["--engine", "torch", "--threads", "1"],
    "serve": ["--host", "localhost", "--port", "0"],
    "tune": ["--seconds", "1", "--json"],
    "check": ["--engine", "openvino", "--threads", "1"],
    "demo": ["--output_dir", "out", "--json"],
}
"""Every command that takes a model, with options beside it."""
SEVERAL = ("benchmark", "serve")


def named(command: str, *words: str) -> Any:
    """The model that a command line names."""
    parser, _ = parser_of(command)
    parsed, rest = parser.parse_known_args(words)
    assert rest == []
    return arguments.model(parsed)


@pytest.mark.parametrize("command", MORE)
def test_model_is_a_word_before_between_or_after_options_or_a_flag(command: str) -> None:
    more, model = MORE[command], ["dir"] if command in SEVERAL else "dir"
    for place in (0, 2, len(more)):
        assert named(command, *more[:place], "dir", *more[place:]) == model
    assert named(command, *more, "--model_name_or_path", "dir") == model
    assert named(command, *more, "--model_name_or_path=dir", "dir") == model
    assert not named(command, *more)


@pytest.mark.parametrize("command", SEVERAL)
def test_several_models_are_words_or_a_flag(command: str) -> None:
    assert named(command, "a", "b", *MORE[command]) == ["a", "b"]
    assert named(command, *MORE[command], "--model_name_or_path", "a", "b") == ["a", "b"]


@pytest.mark.parametrize("command", MORE)
def test_two_models_where_there_is_one_are_refused_in_a_line(
    command: str, tersely: Tersely, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["a", "rows.tsv"] if command == "predict" else ["a"]
    shown = tersely(command, *words, "--model_name_or_path", "b", *MORE[command])
    assert (shown.code, shown.out) == (2, "")
    assert shown.err == "tersely: Two models are named: 'a', and 'b' with --model_name_or_path. Name it once.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [name for name in MORE if name not in ("compress", "demo")])
def test_missing_model_is_said_in_a_line(command: str, tersely: Tersely) -> None:
    shown = tersely(command, *MORE[command])
    assert (shown.code, shown.out) == (2, "")
    assert shown.err == f"tersely: A model is needed. Write: tersely {command} MODEL …\n"


@pytest.mark.parametrize("command", MORE)
def test_word_too_many_is_named(command: str, tersely: Tersely) -> None:
    if command in SEVERAL:
        return
    shown = tersely(command, "a", "b", "c", *MORE[command])
    assert shown.code == 2
    word = "c" if command == "predict" else "b"
    assert shown.err == f"tersely: The word '{word}' belongs to no option. See: tersely {command} --help\n"


@pytest.mark.parametrize("command", ["compress", "finetune"])
def test_values_of_options_of_transformers_are_no_model(command: str) -> None:
    parser, _ = parser_of(command)
    for words in (
        ["--neftune_noise_alpha", "0.5", "--seed", "1", "dir"],
        ["--neftune_noise_alpha=0.5", "dir"],
        ["--neftune_noise_alpha", "0.5"],
    ):
        parsed, rest = parser.parse_known_args(["--output_dir", "out", *words])
        assert arguments.model(parsed) == ("dir" if "dir" in words else None)
        assert rest == [word for word in words if word in ("--neftune_noise_alpha", "0.5", "--neftune_noise_alpha=0.5")]


@pytest.mark.parametrize("command", MORE)
def test_usage_shows_the_model_and_what_is_needed(command: str, tersely: Tersely) -> None:
    usage = tersely(command, "--help").out.splitlines()[0]
    model = "[MODEL]" if command == "demo" else "MODEL"
    assert usage.startswith(f"usage: tersely {command} {model}")
    assert ("--output_dir DIR" in usage) == (MORE[command][0] == "--output_dir" and command != "demo")


def test_flag_of_paddles_model_is_kept() -> None:
    assert named("convert", "--output_dir", "out", "--from_paddle", "dir") == "dir"


def test_word_beside_the_flag_is_the_file_of_rows(tersely: Tersely, tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    assert f"{file}: There is no such file." in tersely("predict", file, "--model_name_or_path", tmp_path).err
    file.write_text("text\nfine\n")
    assert f"{tmp_path / 'no'}: There is no such folder" in (
        tersely("predict", "--model_name_or_path", tmp_path / "no", file).err
    )
    assert "Two models are named" in tersely("predict", tmp_path, "--model_name_or_path", "b").err


@pytest.mark.parametrize("shape", ["model_name_or_path: file", "Global: {model_dir: file}"])
def test_model_on_the_command_line_wins_over_that_of_the_file(shape: str, tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(f"{shape}\nalgo_list: [mse, KL]\nneftune_noise_alpha: 0.8\n")
    for words, model in (
        ([], "file"),
        (["typed"], "typed"),
        (["--model_name_or_path", "typed"], "typed"),
        (["--adam_beta2", "0.9", "--seed", "1", "typed"], "typed"),
    ):
        parser, _ = parser_of("compress")
        words = ["--config", str(tmp_path / "a.yml"), "--output_dir", "out", *words]
        parsed, rest = parser.parse_known_args(prepare(parser, words))
        assert arguments.model(parsed) == model
        assert parsed.algo_list == ["mse", "KL"]
        assert "--neftune_noise_alpha=0.8" in rest


@pytest.mark.parametrize("flag", ["--overwrite", "--overwrite_output_dir"])
@pytest.mark.parametrize("command", ["compress", "finetune", "export", "convert", "predict"])
def test_every_command_that_writes_takes_overwrite_by_both_names(command: str, flag: str) -> None:
    parser, _ = parser_of(command)
    assert parser.parse_known_args(["dir", *MORE[command], flag])[0].overwrite
    assert not parser.parse_known_args(["dir", *MORE[command]])[0].overwrite


@pytest.mark.parametrize("name", ["overwrite", "overwrite_output_dir"])
def test_a_file_may_say_overwrite_by_both_names(name: str, tmp_path: Path) -> None:
    for value, meant in (("true", True), ("false", False)):
        (tmp_path / "a.yml").write_text(f"{name}: {value}\noutput_dir: out\n")
        parser, _ = parser_of("compress")
        parsed, _ = parser.parse_known_args(prepare(parser, ["--config", str(tmp_path / "a.yml")]))
        assert parsed.overwrite is meant
