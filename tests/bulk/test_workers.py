"""Several workers: the same bytes, whoever answers, and whoever dies."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny_artifacts
from bulk_rows import records
from commands import Tersely
from tersely import runtime
from tersely.bulk import Job, Processes, answered, answerer
from tersely.data import Part
from tersely.errors import Failure, UserError

Artifact = Callable[[str], Path]
pytestmark = pytest.mark.slow


def parts(count: int) -> list[Part]:
    task = tiny_artifacts.TASKS["text"]
    texts = [row["text"] for row in records("text", 16 * count)]
    return [Part(i, task.examples(texts[16 * i : 16 * i + 16]), f"rows:{16 * i + 1}") for i in range(count)]


def job(folder: Path, **changes: Any) -> Job:
    return Job(folder, **{"task": tiny_artifacts.TASKS["text"], "format": "jsonl", "engine": "onnxruntime", **changes})


def test_worker_that_is_killed_loses_nothing(artifact: Artifact) -> None:
    """Killed while it has a part and while it has none; every part comes once, with the bytes of one process."""
    all_parts = parts(40)
    team = Processes(job(artifact("text")))
    found: dict[int, bytes] = {}
    for part, content in answered(team, 2, all_parts):
        assert part.index not in found
        found[part.index] = content
        if len(found) in (3, 20):
            next(iter(team.workers.values())).kill()
    answer = answerer(runtime.load(artifact("text"), "onnxruntime", 1), "jsonl")
    assert found == {part.index: answer(part.examples) for part in all_parts}
    assert not team.workers


class Deadly:
    """An example that no worker survives reading."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


def test_rows_that_kill_every_worker_are_named(artifact: Artifact) -> None:
    all_parts = [*parts(3), Part(3, [Deadly()], "rows.jsonl:49-64")]
    with pytest.raises(Failure) as caught:
        list(answered(Processes(job(artifact("text"))), 2, all_parts))
    assert str(caught.value).startswith("rows.jsonl:49-64: Workers ended 3 times over these rows (exit code 3).")


def test_workers_that_never_begin_are_told(artifact: Artifact) -> None:
    team, over = Processes(job(artifact("text"))), threading.Event()

    def kill() -> None:
        while not over.is_set():
            for process in list(team.workers.values()):
                process.kill()
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(Failure, match=r"The workers ended while they opened the model \(exit code -9\)"):
            list(answered(team, 1, parts(1)))
    finally:
        over.set()
        killer.join()


def test_what_a_worker_refuses_is_told_in_its_words(own_artifact_text: Path) -> None:
    broken = own_artifact_text / "tokenizer.json"
    broken.write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json' has changed since it was written"):
        list(answered(Processes(job(own_artifact_text)), 1, parts(1)))


@pytest.fixture
def own_artifact_text(artifact: Artifact, tmp_path: Path) -> Path:
    return tiny_artifacts.copy(artifact("text"), tmp_path / "own")


def test_command_with_workers_writes_the_same_bytes(
    predict: Tersely, artifact: Artifact, small_parts: int, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in records("question", 100)))
    for name, more in (("one.csv", ["--threads", "1"]), ("two.csv", ["--workers", "2", "--threads", "1"])):
        shown = predict(artifact("question"), file, "--output", tmp_path / name, "--max_answer_length", "7", *more)
        assert shown.code == 0, shown.err
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
