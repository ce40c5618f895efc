"""Interrupted runs leave no output, go on where they were, and give the bytes of a run that was not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bulk_rows import inputs, near, records
from commands import Tersely
from tersely import runtime
from tersely.bulk.unfinished import Unfinished

Artifact = Callable[[str], Path]
MARK = '{"label": "taken up"}\n'


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in records("text", 100)))
    return file


def interrupted(predict: Tersely, artifact: Path, rows: Path, output: Path, *more: str) -> list[Path]:
    """Stop where a disk would be full: the parts before it are there."""
    folder = output.with_name(f".{output.name}.parts")
    keep, kept = Unfinished.keep, 0

    def until_full(self: Unfinished, part: object, content: bytes) -> None:
        nonlocal kept
        kept += 1
        if kept > 3:
            raise KeyboardInterrupt
        keep(self, part, content)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Unfinished, "keep", until_full)
        assert predict(artifact, rows, "--output", output, *more).code == 130
    assert not output.exists()
    return sorted(folder.iterdir())


def test_parts_that_are_done_are_taken_up(
    predict: Tersely, artifact: Artifact, rows: Path, small_parts: int, tmp_path: Path
) -> None:
    output, uninterrupted = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    predict(artifact("text"), rows, "--output", uninterrupted)
    parts = interrupted(predict, artifact("text"), rows, output)
    assert len(parts) == 3
    parts[1].write_text(MARK * 16)  # what is in it now cannot have been computed again
    shown = predict(artifact("text"), rows, "--output", output)
    assert (shown.code, shown.err) == (0, "An earlier run was interrupted; going on where it was.\n")
    expected = uninterrupted.read_text().splitlines(keepends=True)
    assert output.read_text().splitlines(keepends=True) == expected[:16] + [MARK] * 16 + expected[32:]
    assert not output.with_name(".out.jsonl.parts").exists()


@pytest.mark.parametrize("change", ["batch_size", "rows", "model", "length"])
def test_parts_of_other_inputs_are_not(
    change: str, predict: Tersely, artifact: Artifact, rows: Path, small_parts: int, tmp_path: Path
) -> None:
    output, model = tmp_path / "out.jsonl", artifact("text")
    for part in interrupted(predict, model, rows, output):
        part.write_text(MARK * 16)
    more = {"batch_size": ["--batch_size", "5"], "length": ["--max_seq_length", "12"]}.get(change, [])
    if change == "rows":
        lines = rows.read_text().splitlines(keepends=True)
        rows.write_text("".join([json.dumps({"text": "another"}) + "\n", *lines[1:]]))
    if change == "model":
        import tiny_artifacts

        model = tiny_artifacts.make(tmp_path / "other", seed=1)
    assert predict(model, rows, "--output", output, *more).code == 0
    taken = output.read_text().count(MARK)
    assert taken == (32 if change == "rows" else 0)  # one row changed: the two parts behind it are still good
    assert len(output.read_text().splitlines()) == 100


def test_rows_of_standard_input_leave_nothing(
    predict: Tersely, artifact: Artifact, small_parts: int, tmp_path: Path
) -> None:
    lines = [row["text"] for row in records("text", 40)]
    shown = predict(artifact("text"), "--output", tmp_path / "out.jsonl", stdin="\n".join([*lines, "{broken"]))
    assert shown.code == 2
    assert shown.err.startswith("tersely: standard input:41: The line looks like JSON but is not")
    assert list(tmp_path.iterdir()) == []


def test_second_run_does_not_write_the_same_output(
    predict: Tersely, artifact: Artifact, rows: Path, tmp_path: Path
) -> None:
    with Unfinished(tmp_path / "out.jsonl", "mark", resumable=True):
        shown = predict(artifact("text"), rows, "--output", tmp_path / "out.jsonl")
        assert shown.code == 2
        assert "Another run is writing this output" in shown.err
    assert predict(artifact("text"), rows, "--output", tmp_path / "out.jsonl").code == 0


TIMES = 1000
"""Rows are so many times 400: a run must not end before its signal, also where the machine is busy."""


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_killed_and_ctrl_c_with_workers(predict: Tersely, artifact: Artifact, tmp_path: Path) -> None:
    """SIGKILL to the first process, then Ctrl-C: workers end with it both times, and what was done counts."""
    file, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows = records("text", 400)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) * TIMES)
    words = ["predict", artifact("text"), file, "--output", output, "--workers", "2", "--engine", "onnxruntime"]
    parts = output.with_name(".out.jsonl.parts")
    done = 0
    for sent, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        command = [sys.executable, "-m", "tersely", *map(str, words)]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=_heeds_ctrl_c
        )
        _until(lambda: parts.is_dir() and _count(parts) >= done + 2, process)  # noqa: B023 - called at once
        if sent == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the workers too
        _, errors = process.communicate(timeout=60)
        assert process.returncode == code
        assert "Traceback" not in errors
        assert sent == signal.SIGKILL or errors.endswith("tersely: interrupted\n")
        _until(lambda: not _group(process.pid))  # noqa: B023
        assert not output.exists()
        done = _count(parts)
    assert predict(artifact("text"), file, "--output", output, "--threads", "1").code == 0
    answers = runtime.load(artifact("text"), "onnxruntime", 1).predict(inputs("text", rows))
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert near(found, [answer.as_json() for answer in answers] * TIMES)


def _heeds_ctrl_c() -> None:
    """Of tests that a script runs in the background a shell has said that they do not, and processes inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _count(parts: Path) -> int:
    return sum("." not in path.name for path in parts.iterdir())


def _group(leader: int) -> bool:
    """Whether any process of the group is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, 0)
        return True
    return False


def _until(true: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    for _ in range(3000):
        if true():
            return
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    raise AssertionError("It did not come true within a minute.")
