"""What holds for all commands: help, spelling, exit codes, one JSON object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import Tersely
from tersely import __version__
from tersely.cli import COMMANDS, main

HEAVY = ("torch", "transformers", "openvino", "onnxruntime", "rich", "datasets")


def subprocess_of(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)


def imported(*words: str) -> set[str]:
    """Which of the heavy packages a command imports."""
    code = (
        "import sys\nfrom tersely.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(' '.join(sys.modules))\n"
    )
    return {name for name in subprocess_of(code, *words).stderr.split() if name in HEAVY}


def test_help_names_every_command(tersely: Tersely) -> None:
    for words in ([], ["--help"], ["-h"]):
        shown = tersely(*words)
        assert shown.code == 0
        assert all(f"  {name} " in shown.out for name in COMMANDS)


def test_version_is_printed(tersely: Tersely) -> None:
    assert tersely("--version").out == f"tersely {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_lists_its_options(command: str, tersely: Tersely) -> None:
    shown = tersely(command, "--help")
    assert shown.code == 0
    assert f"usage: tersely {command}" in shown.out
    assert "--json" in shown.out
    assert "--debug" in shown.out


def test_help_is_instant_and_imports_nothing_heavy() -> None:
    took = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "tersely", "--help"], capture_output=True, timeout=60)
        took.append(time.perf_counter() - started)
        assert done.returncode == 0
    assert min(took) < 0.5
    assert imported("--help") == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_imports_neither_torch_nor_transformers(command: str) -> None:
    assert imported(command, "--help") & {"torch", "transformers", "openvino", "datasets"} == set()


def test_command_that_is_not_there_names_the_nearest(tersely: Tersely) -> None:
    shown = tersely("evalute")
    assert (shown.code, shown.err) == (2, "tersely: There is no command 'evalute'. Did you mean 'evaluate'?\n")


@pytest.mark.parametrize("word", ["--enginee=torch", "--enginee"])
def test_option_that_is_not_there_names_the_nearest(word: str, tersely: Tersely) -> None:
    shown = tersely("evaluate", "--model_name_or_path", "x", word)
    assert shown.code == 2
    assert shown.err == "tersely: There is no option '--enginee'. Did you mean '--engine'?\n"


def test_option_that_is_needed_is_named(tersely: Tersely) -> None:
    shown = tersely("export", "model")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("tersely: The following arguments are required: --output_dir.")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["--model-name-or-path", "no-such", "--eval-file", "no-such.tsv"],
     ["--model-name-or-path=no-such", "--eval-file=no-such.tsv"]],
    ids=["blank", "equals"],
)  # fmt: skip
def test_options_may_be_written_with_hyphens(words: list[str], tersely: Tersely) -> None:
    shown = tersely("evaluate", *words)
    assert (shown.code, shown.err) == (2, "tersely: no-such.tsv: There is no such file. Check the path.\n")


def test_abbreviated_option_is_not_guessed(tersely: Tersely) -> None:
    assert "no option '--eval'" in tersely("evaluate", "--model_name_or_path", "x", "--eval", "y").err


def test_debug_raises(tersely: Tersely) -> None:
    from tersely.errors import UserError

    with pytest.raises(UserError, match="There is no such file"):
        main(["evaluate", "--model_name_or_path", "x", "--eval_file", "no-such.tsv", "--debug"])


def test_what_nobody_foresaw_is_one_line_and_exit_code_1(tersely: Tersely, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> str:
        raise RuntimeError("first line\n  second line")

    monkeypatch.setattr("importlib.metadata.version", broken)
    shown = tersely("info")
    assert (shown.code, shown.err) == (
        1,
        "tersely: RuntimeError: first line second line (a bug: --debug shows where)\n",
    )
    with pytest.raises(RuntimeError, match="first line"):
        tersely("info", "--debug")


def test_interruption_is_one_line(tersely: Tersely, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(name: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.metadata.version", interrupt)
    assert (tersely("info").code, tersely("info").err) == (130, "tersely: interrupted\n")


def test_reader_that_goes_away_is_no_error_message() -> None:
    read, write = os.pipe()
    os.close(read)
    code = "import sys\nfrom tersely.cli import main\nsys.exit(main(['info', '--json']))"
    signal_default = lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # noqa: E731 - as Python itself starts
    done = subprocess.run(
        [sys.executable, "-u", "-c", code],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        preexec_fn=signal_default,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_info_says_what_there_is(tersely: Tersely) -> None:
    shown = tersely("info", "--json").json
    assert set(shown["engines"]) == {"onnxruntime", "openvino", "torch"}
    assert shown["cpu"]["class"] in {"amx", "vnni", "avx2", "other"}
    import torch

    assert shown["packages"]["torch"] == torch.__version__
    plain = tersely("info")
    assert plain.code == 0
    assert f"class {shown['cpu']['class']}" in plain.out
    assert "engines: onnxruntime, openvino, torch" in plain.out


def test_info_says_why_there_is_no_bf16(tersely: Tersely) -> None:
    here = tersely("info", "--json").json["cpu"]
    assert here["bf16"] or here["bf16_note"].startswith("no: this CPU lists none of")


@pytest.mark.slow
def test_real_process_prints_one_object_and_nothing_else(
    model_folder: Callable[..., Path], files: dict[str, Path], tmp_path: Path
) -> None:
    words = ["evaluate", "--model_name_or_path", str(model_folder()), "--eval_file", str(files["text"]), "--json"]
    command = Path(sys.executable).with_name("tersely")
    done = subprocess.run([str(command), *words], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] == 30
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["export", "finetune"])
def test_base_install_names_the_extra_that_is_missing(command: str, tmp_path: Path) -> None:
    """A module that is None in `sys.modules` cannot be imported."""
    (tmp_path / "rows.tsv").write_text("text\tlabel\na\t0\nb\t1\n")
    words = [command, "--model_name_or_path", str(tmp_path), "--output_dir", str(tmp_path / "out")]
    words += ["--train_file", str(tmp_path / "rows.tsv")] if command == "finetune" else []
    code = "import sys; sys.modules.update(torch=None, transformers=None); from tersely.cli import main; "
    code += f"sys.exit(main({[*words, '--eval_file', str(tmp_path / 'rows.tsv')]!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("tersely: The package '")
    assert 'pip install "accelerate>=' in done.stderr
