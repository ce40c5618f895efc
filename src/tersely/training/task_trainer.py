"""`TaskTrainer`: a `transformers.Trainer` that scores itself with the task's own metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .. import engines
from ..measure.score import score
from ..progress import Advance
from ..runtime import Predictor
from ..tasks import Encoder, Task


class TaskTrainer(Trainer):  # type: ignore[misc]
    """Evaluates by answering the eval rows, so that the number that selects is the number that is reported."""

    def __init__(self, *, task: Task, encoder: Encoder, eval_examples: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task, self.encoder, self.eval_examples = task, encoder, eval_examples

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:
        """Score the model as it is now."""
        engine = engines.load("torch", self.model)
        predictor = Predictor(self.task, self.encoder, engine, batch_size=self.args.per_device_eval_batch_size)
        scored = score(predictor, self.eval_examples, resamples=0)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in scored.metrics.items()}
        self.log(metrics)
        self.control: TrainerControl = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class ShowProgress(TrainerCallback):  # type: ignore[misc]
    """Moves the bar: a unit a step, with the last loss and score; that of each part by its name, if there are any."""

    def __init__(self, advance: Advance, metric: str, parts: Sequence[str] = ()) -> None:
        self.advance, self.shown = advance, 0
        self.note: dict[str, str] = {}
        self.scores = {f"eval_{part}_{metric}": part for part in parts} or {f"eval_{metric}": metric}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count steps, those before a resume too."""
        self.advance(state.global_step - self.shown, "  ".join(f"{k} {v}" for k, v in self.note.items()))
        self.shown = state.global_step

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        """Remember the last loss and score."""
        for key, value in (logs or {}).items():
            if key == "loss":
                self.note["loss"] = f"{value:.4f}"
            elif key in self.scores:
                self.note[self.scores[key]] = f"{100 * value:.2f}"
