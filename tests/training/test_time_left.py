"""The time left of a training counts the scoring of rows, and rows that are scored show that they are."""

from __future__ import annotations

import io
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from fake_quantized import Subject
from learnable import LENGTH, rows, single
from tersely import data, progress
from tersely.prune import PruneSettings, TrainingRun, train_widths
from tersely.qat import QatSettings, train_int8
from tersely.tasks.options import TaskOptions
from tersely.training.finetune import LabelledRows, finetune
from tersely.training.scored_trainer import Pace
from widths import examples, learnt

STEPS, SAVE = 6, 3
TRAINING: dict[str, Any] = {
    "max_steps": STEPS, "save_steps": SAVE, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 8,
}  # fmt: skip
STEP, BATCH = 0.5, 2.0
"""Seconds that a forward of a training step and a batch of scoring take, by the clock here."""
LINE = re.compile(r"(?P<done>\d+)/(?P<total>\d+), about (?P<left>\d+) s left(?P<note>.*)")


class Heard(progress.Plain):
    """The lines that are shown without a terminal, and when."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []

    def say(self, line: str) -> None:
        self.lines.append((time.monotonic(), line))

    def training(self) -> list[tuple[float, int, int, str]]:
        """Of the training's bar: seconds that were really left, steps done, seconds shown, note."""
        done = [(when, *line.partition(": done in")[:2]) for when, line in self.lines]
        end, title = [(when, title) for when, title, ended in done if ended and title.startswith(("train", "fine"))][-1]
        found = [(when, LINE.search(line)) for when, line in self.lines if line.startswith(title)]
        return [(end - when, int(m["done"]), int(m["left"]), m["note"]) for when, m in found if m]


class Clock:
    """Time that only passes where a test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("time.monotonic", found)
    return found


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Heard]:
    """A batch that is answered takes four times as long as one that is trained on; all else takes no time."""

    def pass_time(module: Any, _: Any) -> None:
        if type(module).__name__.endswith("ForSequenceClassification"):
            clock.now += BATCH if torch.is_inference_mode_enabled() else STEP

    monkeypatch.setattr(progress, "EVERY", 0.0)
    handle = register_module_forward_pre_hook(pass_time)
    yield Heard()
    handle.remove()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return learnt(tmp_path_factory.mktemp("learnt"), hidden=64)


def finetuned(model: Any, work: Path, heard: Heard) -> None:
    parts = [data.read(model.path.parent / f"{part}.jsonl") for part in ("train", "dev")]
    options = TaskOptions(task="sequence_classification", max_seq_length=LENGTH)
    encoder = model.path.parent / "encoder"
    finetune(encoder, LabelledRows(*parts), work, options=options, training=TRAINING, progress=heard)


def pruned(model: Any, work: Path, heard: Heard) -> None:
    train_widths(run_of(model, work), PruneSettings("1/2 1/4", importance="teacher"), progress=heard)


def trained_for_int8(model: Any, work: Path, heard: Heard) -> None:
    subject = Subject.of(model.path, tuple(row["text"] for row in rows(single, 16, seed=5)))
    settings = QatSettings(algo_list=("min_max",), distill_logits=0.0)
    train_int8(run_of(model, work), subject.calibrated, settings, progress=heard)


def run_of(model: Any, work: Path) -> TrainingRun:
    return TrainingRun(model, examples(model, "train"), examples(model, "dev"), work, TRAINING)


@pytest.mark.parametrize("train", [finetuned, pruned, trained_for_int8])
def test_scorings_are_counted_and_seen(
    model: Any, tmp_path: Path, heard: Heard, train: Callable[[Any, Path, Heard], None]
) -> None:
    train(model, tmp_path / "work", heard)
    lines = heard.training()
    at_steps = [line for line in lines if "scoring" not in line[3]]
    real, done, *_ = at_steps[-1]
    assert done == STEPS
    assert real >= 7 * BATCH, "rows are scored after the last step"
    assert all(real / 2 <= shown <= 2 * real for real, done, shown, _ in at_steps if done > SAVE)
    moves = [(real, int(move[1])) for real, *_, note in lines if (move := re.search(r"scoring (\d+)/50", note))]
    counts = [count for real, count in moves if real < at_steps[-1][0]][:4]
    assert counts == [8, 16, 24, 32], "rows are counted while they are scored"
    if train is trained_for_int8:
        shown = {done: (real, left) for real, done, left, _ in at_steps}
        assert all(real / 2 <= left <= 2 * real for real, left in shown.values())
        assert 1 in shown, "what is scored before the first step is no step"


def test_steps_and_scorings_are_learnt_apart(clock: Clock) -> None:
    pace = Pace(8, 100)
    assert pace.left(10, 2) is None
    pace.begin()
    clock.now += 24.0  # the first step sets things up
    pace.end_step()
    assert pace.left(9, 0) == pytest.approx(9 * 24.0)
    assert pace.left(0, 1) == pytest.approx(100 * 24.0 / 8 / 3), "a scored row: a third of one that is trained on"
    for _ in range(3):
        pace.begin()
        clock.now += 2.0
        pace.end_step()
    assert pace.left(6, 0) == pytest.approx(6 * 2.0)
    clock.now += 25.0
    pace.end_rows(50)
    assert pace.left(6, 1) == pytest.approx(6 * 2.0 + 50.0 + 25.0), "half of this scoring and another one"
    clock.now += 25.0
    pace.end_rows(50)
    clock.now += 10.0  # what scored best is written
    pace.begin()
    assert pace.left(6, 1) == pytest.approx(6 * 2.0 + 60.0)


def test_what_sets_the_first_scoring_up_promises_no_minutes(clock: Clock) -> None:
    pace = Pace(8, 100)
    for _ in range(3):
        pace.begin()
        clock.now += 2.4
        pace.end_step()
    clock.now += 5.0  # all rows are tokenized
    pace.end_rows(4)
    assert pace.left(10, 1) == pytest.approx(10 * 2.4 + (96 + 100) * 0.1)
    clock.now += 1.0
    pace.end_rows(6)
    assert pace.left(10, 1) == pytest.approx(10 * 2.4 + (90 + 100) * 0.6)


def test_a_scoring_before_any_step_gives_a_first_guess(clock: Clock) -> None:
    pace = Pace(4, 10)
    pace.begin()
    clock.now += 5.0
    pace.end_rows(10)
    pace.begin()
    assert pace.left(1, 1) == pytest.approx(3 * 4 * 0.5 + 5.0)


def test_what_work_expects_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", screen)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    with progress.Terminal().track("train", 4) as advance:
        assert isinstance(advance, progress.Estimated)
        advance.expect(3725.2)
        advance(4, "scoring 1/50")
    assert "4/4 1:02:05 scoring 1/50" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())


def test_an_advance_without_estimate_still_does(model: Any, tmp_path: Path) -> None:
    """As a progress of the user's own has it."""

    class Counted(progress.Silent):
        def __init__(self) -> None:
            self.done = Counter()

        def track(self, title: str, total: int) -> Any:
            return nullcontext(lambda count=1, note="": self.done.update({title.split()[0]: count}))

    counted, run = Counted(), run_of(model, tmp_path / "work")
    settings = PruneSettings("1/2", importance="teacher", reorder=False)
    train_widths(replace(run, training={**TRAINING, "max_steps": 2}), settings, progress=counted)
    assert (counted.done["dry"], counted.done["train"]) == (1, 2), "one dry run and two steps"
