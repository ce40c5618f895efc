"""What is shown: bars and tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from learnable import single, split, tiny, tsv
from tersely.cli import console
from tersely.progress import Plain, Terminal


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screens(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Screen, Screen]]:
    """Make standard output and error terminals (in the test itself: pytest changes both after the set-up)."""

    def make() -> tuple[Screen, Screen]:
        out, err = Screen(), Screen()
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setattr("sys.stderr", err)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        return out, err

    return make


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(console.progress(), Plain)
    monkeypatch.setattr("sys.stderr", Screen())
    assert isinstance(console.progress(), Terminal)


def test_bar_shows_title_count_and_note_and_leaves_standard_output_alone(
    screens: Callable[[], tuple[Screen, Screen]],
) -> None:
    out, err = screens()
    with Terminal().track("train [1/2]", 4) as advance:
        advance(3, "loss 0.5 [high]")
        print("an answer")
        advance()
    Terminal().say("done")
    assert out.getvalue() == "an answer\n"
    shown = err.getvalue()
    assert "train [1/2]" in shown
    assert "4/4" in shown
    assert shown.endswith("done\n")


def test_plain_lines_come_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with Plain().track("train", 10) as advance:
        for step in range(10):
            now = 4.0 * (step + 1)
            advance(1, "loss 0.5")
    assert capsys.readouterr().err.splitlines() == [
        "train: 3/10, about 28 s left  loss 0.5",
        "train: 6/10, about 16 s left  loss 0.5",
        "train: 9/10, about 4 s left  loss 0.5",
        "train: done in 40 s",
    ]


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Plain().track("train", 2) as advance:
        advance(2)
    assert capsys.readouterr().err == ""


def test_table_is_drawn_on_a_terminal_with_names_as_they_are(screens: Callable[[], tuple[Screen, Screen]]) -> None:
    out, _ = screens()
    console.table("scores [dev]", ["model", "score"], [["bert[1]", "81.86"], ["[red]", None]])
    shown = out.getvalue()
    assert "scores [dev]" in shown
    assert "bert[1]" in shown
    assert "[red]" in shown
    assert "│ 81.86" in shown


def test_table_is_aligned_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    console.table("scores", ["model", "×"], [["小", "9.50"], ["bert", "10.00"]])
    assert capsys.readouterr().out == "scores\nmodel      ×\n小      9.50\nbert   10.00\n"


def test_commands_draw_on_a_terminal(screens: Callable[[], tuple[Screen, Screen]], tmp_path: Path) -> None:
    from tersely.cli import main

    train, dev = split(tmp_path, single, tsv, "tsv")
    out, err = screens()
    words = ["finetune", "--model_name_or_path", tiny(tmp_path / "encoder"), "--task", "sequence_classification"]
    words += ["--train_file", train, "--eval_file", dev, "--output_dir", tmp_path / "out", "--max_steps", "3"]
    assert main([str(word) for word in [*words, "--max_seq_length", "24"]]) == 0
    assert "fine-tune" in err.getvalue()
    assert "3/3" in err.getvalue()
    assert main(["evaluate", "--model_name_or_path", str(tmp_path / "out"), "--eval_file", str(dev)]) == 0
    assert "│ accuracy" in out.getvalue()
    assert sys.stdout is out
