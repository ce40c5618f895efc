"""`ScoredTrainer`: a `transformers.Trainer` that scores rows as it goes, under a bar whose time left counts that."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from .. import engines
from ..errors import UserError
from ..measure.score import Score, score
from ..progress import SILENT, Advance, Estimated, Progress
from ..runtime import Predictor
from ..tasks import Encoder, Task

TRAINED_ROW = 3
"""Scored rows that take as long as one that is trained on (a backward pass costs two forwards): the first guess."""
FIRST_ROWS = 0.1
"""The share of a first scoring that has to be done before its own pace is believed."""


@dataclass(frozen=True)
class Scorer:
    """Scores torch models on the same rows, with the task's own metric."""

    task: Task
    encoder: Encoder
    examples: Sequence[Any]

    def score(self, model: Any, *, batch_size: int = 16, resamples: int = 2000, progress: Progress = SILENT) -> Score:
        """Score a model as it is now, as reports do: the number that selects is the number that is reported."""
        predictor = Predictor(self.task, self.encoder, engines.load("torch", model), batch_size=batch_size)
        return score(predictor, self.examples, resamples=resamples, title="scoring", progress=progress)


class ScoredTrainer(Trainer):  # type: ignore[misc]
    """Evaluates by answering the eval rows. A subclass says what is scored."""

    def __init__(self, *, scorer: Scorer, **parts: Any) -> None:
        try:
            super().__init__(**parts)
        except ValueError as error:  # what TrainingArguments lets pass and the trainer does not, such as fp16 on a CPU
            raise UserError(f"A training option cannot be taken: {error}") from None
        self.remove_callback(PrinterCallback)
        self.scorer = scorer
        self.shown: Progress = SILENT

    def show(self, shown: ShowProgress) -> None:
        """Show steps and scorings there."""
        self.shown = shown
        self.add_callback(shown)

    def run(self, begun: Path | None) -> None:
        """Train, from a checkpoint if there is one."""
        self.train(resume_from_checkpoint=str(begun) if begun else None)
        self.accelerator.wait_for_everyone()  # another process may still write into the last checkpoint

    def score(self, model: Any, *, resamples: int = 2000) -> Score:
        """The score of a model on the eval rows."""
        size = self.args.per_device_eval_batch_size
        return self.scorer.score(model, batch_size=size, resamples=resamples, progress=self.shown)

    def log_scores(self, metrics: dict[str, float]) -> dict[str, float]:
        """Log scores, and let callbacks know of them."""
        self.log(metrics)
        self.control: TrainerControl = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class Pace:
    """How long steps and scorings take, learnt as they come, and how long the rest will take therefore.

    `step_rows`: rows that a step trains on; `scoring_rows`: rows that a scoring passes through, both counted once for
    each network. The time from the end of a step to the next step, if rows are scored in between, is the scoring's.
    """

    def __init__(self, step_rows: int, scoring_rows: int) -> None:
        self.step_rows, self.scoring_rows = step_rows, scoring_rows
        self.scored: int | None = None
        """Rows of the scoring that is under way; None: there is none."""
        self._steps, self._step_seconds, self._rows, self._row_seconds = 0, 0.0, 0, 0.0
        self._since = time.monotonic()

    def begin(self) -> None:
        """A step begins: a scoring that was under way is over, and what came before the first step does not count."""
        if self.scored is not None:
            self._rows += self.scored
            self._row_seconds += self._elapsed()
        elif self._steps:
            return
        self.scored, self._since = None, time.monotonic()

    def end_step(self) -> None:
        """A step is done. The first sets things up: it counts only as long as there is no other."""
        if self._steps == 1:
            self._steps, self._step_seconds = 0, 0.0
        self._steps += 1
        self._step_seconds += self._elapsed()
        self._since = time.monotonic()

    def end_rows(self, count: int) -> None:
        """Some rows are scored."""
        self.scored = (self.scored or 0) + count

    def left(self, steps: int, scorings: int) -> float | None:
        """Seconds for so many steps and scorings and the rest of one that is under way; None: nothing is known yet."""
        rows, seconds = self._rows, self._row_seconds
        # The first rows of all take what sets a scoring up, and alone would promise many minutes.
        if self.scored and (rows or not self._steps or self.scored >= FIRST_ROWS * self.scoring_rows):
            rows, seconds = rows + self.scored, seconds + self._elapsed()
        if not rows and not self._steps:
            return None
        guess = TRAINED_ROW * self.step_rows
        step = self._step_seconds / self._steps if self._steps else guess * seconds / rows
        row = seconds / rows if rows else step / guess
        under_way = 0 if self.scored is None else max(0, self.scoring_rows - self.scored)
        return steps * step + (scorings * self.scoring_rows + under_way) * row

    def _elapsed(self) -> float:
        return time.monotonic() - self._since


class ShowProgress(TrainerCallback):  # type: ignore[misc]
    """Moves the bar: a unit a step, with the last loss and scores, and the `Progress` of the scorings in between.

    `names`: of the networks that are scored, if each is to be shown by its name. `at_end`: how many more times rows are
    scored when the training is over.
    """

    def __init__(self, advance: Advance, scorer: Scorer, names: Sequence[str] = (), *, at_end: int = 0) -> None:
        metric = scorer.task.metric
        self.advance, self.at_end, self.networks = advance, at_end, max(1, len(names))
        self.pace = Pace(1, self.networks * len(scorer.examples))
        self.step = self.last = 0
        self.every = math.inf
        self.note: dict[str, str] = {}
        self.scores = {f"eval_{name}_{metric}": name for name in names} or {f"eval_{metric}": metric}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Learn how many steps there are, and after how many rows are scored."""
        self.pace.step_rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * self.networks
        self.last = state.max_steps
        if args.eval_strategy == "steps":
            self.every = state.eval_steps
        elif args.eval_strategy == "epoch":
            self.every = state.max_steps / state.num_train_epochs
        self.pace.begin()

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A scoring before this step is over."""
        self.pace.begin()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Count steps, those before a resume too."""
        self.pace.end_step()
        count, self.step = state.global_step - self.step, state.global_step
        self._show(count, self._scorings(self.step - 1))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The last scoring of the training is over; what is scored from now on is what comes at the end."""
        self.pace.begin()
        self.at_end = 0

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        """Remember the last loss and score."""
        for key, value in (logs or {}).items():
            if key == "loss":
                self.note["loss"] = f"{value:.4f}"
            elif key in self.scores:
                self.note[self.scores[key]] = f"{100 * value:.2f}"

    @contextmanager
    def track(self, title: str, total: int) -> Iterator[Advance]:
        """Show how far a scoring is beside the steps; `total`: rows of one network."""
        self.pace.scoring_rows, done = total * self.networks, 0
        after = self._scorings(self.step)

        def advance(count: int = 1, note: str = "") -> None:
            nonlocal done
            done += count
            self.pace.end_rows(count)
            self._show(0, after, f"{title} {done}/{total}")

        yield advance

    def say(self, line: str) -> None:
        """Nothing is said in between."""

    def _show(self, count: int, scorings: int, more: str = "") -> None:
        left = self.pace.left(self.last - self.step, scorings)
        if left is not None and isinstance(self.advance, Estimated):
            self.advance.expect(left)
        notes = [f"{name} {value}" for name, value in self.note.items()]
        self.advance(count, "  ".join([*notes, more] if more else notes))

    def _scorings(self, step: int) -> int:
        """How many scorings come after this step: regular ones, one behind the last step, and those at the end."""
        points = math.ceil(self.last / self.every - 1e-9) - math.floor(step / self.every + 1e-9)
        regular = points if step < self.last else 0
        return regular + self.at_end
