"""`distil_shape`: train a pruned and repaired model on, taught by the model that it was cut out of.

What it begins with is good already, and a rate that is too high only takes it away: a few steps at each of some rates
show which one to take. Held-out rows, which no step sees, say how far the answers are from the teacher's; what is
nearest is kept, step 0 among the candidates, and training ends when it comes no nearer. Labels are not needed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from ..atomic import atomic_file
from ..engines.torch import as_tuple
from ..errors import UserError, fill
from ..measure.score import Answers, Score
from ..models.carve import shape_of, twin
from ..models.families import Family, find
from ..progress import SILENT, Progress
from ..training.arguments import DEFAULTS, steps_of
from ..training.batches import Collator, FeatureDataset
from ..training.checkpoints import fingerprint
from ..training.distillation import DistilTrainer, Method, TrainingRun, check_rows, distil
from ..training.isolated import isolated
from ..training.losses import Counts, LossSettings, Outputs, logits_loss, mask_of
from ..training.model_folder import save_carved
from .dynabert import ElasticTrainer, pruning_arguments
from .elastic import Elastic

RATES = (1e-5, 3e-5, 1e-4)
"""Learning rates that are looked at: 1e-4 moved MRPC's logits away from every repaired start, 3e-5 did not."""
LOOK, FEWEST_LOOKED, MOST_LOOKED = 0.04, 20, 60
"""The share of all steps that a look takes, and its bounds."""
SCORINGS = 40
"""A training is scored so often, unless the options say, and no more often than every `save_steps` steps."""
PATIENCE = 5
"""Scorings that may come no nearer before training ends. An eighth of it: what a falling rate gains comes late."""
HELD_SHARE, MOST_HELD = 0.1, 400
"""Training rows that no step sees."""
NAME = "distilled"
BATCH = 16


@dataclass(frozen=True)
class Distilled:
    """The trained model, the step that it is of, and how far its answers are from the teacher's on held-out rows.

    `start`: how far they were before the first step. The distance is the loss of the answers, less what is left of it
    when they are the teacher's own.
    """

    folder: Path
    step: int
    steps: int
    rate: float
    start: float
    distance: float


@dataclass(frozen=True)
class _Course:
    """How a training goes, settled by looks; `mark`: of which training."""

    mark: str
    rate: float
    steps: int


def distil_shape(run: TrainingRun, settings: LossSettings, *, progress: Progress = SILENT) -> Distilled:
    """Train a pruned model to answer as its teacher does, and give it where it came nearest.

    As many steps as the options say, or as there is time for. Where the options set a learning rate there are no looks.
    A step costs a forward of the teacher, and forward and backward of the model.
    """
    labels = "'label_loss'" if settings.label_loss > 0 else None
    check_rows(run, "to distil with", "a step", labels=labels, hint="--label_loss 0")
    run = _held_out(run, settings)
    course = _course(run, settings, progress)
    every = max(DEFAULTS["save_steps"], course.steps // SCORINGS)
    training = {"save_steps": every, **run.training, "learning_rate": course.rate, "max_steps": course.steps}
    best = distil(replace(run, training=training), _OneShape(run, settings), progress)[NAME]
    start = best.score.metrics["start"]
    return Distilled(best.folder, best.step, course.steps, course.rate, start, best.score.value)


def _held_out(run: TrainingRun, settings: LossSettings) -> TrainingRun:
    """The run without a share of its rows, which judge in the place of the eval rows."""
    rows = run.rows if settings.distils else list(run.train)
    count = max(1, min(MOST_HELD, round(HELD_SHARE * len(rows))))
    if len(rows) < 2:
        raise UserError("There is one training row; two are needed at least.", hint="Give more with --train_file.")
    held = set(np.random.default_rng(run.seed).permutation(len(rows))[:count].tolist())
    train = [row for number, row in enumerate(run.train) if number not in held]
    others = [row for number, row in enumerate(run.unlabelled, len(run.train)) if number not in held]
    return replace(run, train=train, unlabelled=others, evaluation=[rows[number] for number in sorted(held)])


def _course(run: TrainingRun, settings: LossSettings, progress: Progress) -> _Course:
    """The rate and the number of steps: as the options say, else what looks find; kept for a run that goes on."""
    folder, features = run.folder, len(run.folder.task.features(run.rows, run.folder.encoder))
    with isolated():
        arguments = pruning_arguments(run.training, run.work, run.seed)
        steps, rate, is_first = (
            steps_of(arguments, features),
            float(arguments.learning_rate),
            arguments.process_index == 0,
        )
        mark = fingerprint(folder.path, folder.task, arguments, run.rows, [settings.as_json()])
    if "learning_rate" in run.training and run.until is None:
        return _Course("", rate, steps)
    place = run.work.with_name(f"{run.work.name}-course.json")
    with suppress(OSError, ValueError, UserError):
        known = fill(_Course, json.loads(place.read_text(encoding="utf-8")), "The course")
        if known.mark == mark:
            return known
    looked = max(FEWEST_LOOKED, min(MOST_LOOKED, round(LOOK * steps)))
    rates = (rate,) if "learning_rate" in run.training else RATES
    reached, pace = {}, 0.0
    for tried in rates:
        began = time.monotonic()
        look = {**run.training, "learning_rate": tried, "max_steps": min(looked, steps), "save_steps": looked}
        look |= {"lr_scheduler_type": "constant", "warmup_steps": 0, "warmup_ratio": 0.0}
        work = run.work.with_name(f"{run.work.name}-look-{tried:g}")
        found = distil(
            replace(run, training=look, work=work, until=None), _OneShape(run, settings, scores_start=False), progress
        )
        reached[tried] = found[NAME].score.value
        pace = max(pace, (time.monotonic() - began) / min(looked, steps))
    if run.until is not None:
        steps = _fewest(max(1, min(steps, int((run.until - time.monotonic()) / pace))))
    course = _Course(mark, min(reached, key=lambda tried: reached[tried]), steps)
    if is_first:
        with atomic_file(place) as stream:
            stream.write(json.dumps(asdict(course)).encode())
    return course


def _fewest(steps: int) -> int:
    """The least of what each process has time for."""
    if not torch.distributed.is_initialized():
        return steps
    found = torch.tensor(steps)
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MIN)
    return int(found)


@final
class _OneShape(Method):
    """One model at its own shape, judged by how far its answers are from its teacher's."""

    arguments = staticmethod(pruning_arguments)
    file, less_is_better = "config.json", True

    def __init__(self, run: TrainingRun, settings: LossSettings, scores_start: bool = True) -> None:
        self.run, self.settings, self.scores_start = run, settings, scores_start
        self.family = find(run.folder.config)

    def begin(self, model: Any) -> tuple[Sequence[str], Family | None]:
        return [NAME], self.family

    def prepare(self, model: Any, begun: bool, progress: Progress) -> None:
        """Nothing: what is trained was exported before."""
        return

    def student(self, model: Any, begun: bool, steps: int, progress: Progress) -> Elastic:
        shape = shape_of(model, self.family).standing_alone
        return Elastic(twin(model, torch.clone), {NAME: shape}, self.family)

    def trainer(self, **parts: Any) -> DistilTrainer:
        return _ShapeTrainer(**parts)

    def write(self, network: Any, place: Path) -> None:
        save_carved(network, place, source=self.run.folder.path, overwrite=True)


class _ShapeTrainer(ElasticTrainer):
    """Evaluating measures how far the teacher is on held-out rows, keeps the nearest, and ends what is of no use."""

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Keep the model if it is nearer than before."""
        began = time.monotonic()
        distance = self._distance()
        seen = [entry["eval_distance"] for entry in self.state.log_history if "eval_distance" in entry]
        metrics = {"distance": distance, "start": seen[0] if seen else distance}
        answers = Answers(len(self.scorer.examples), time.monotonic() - began, [], [])
        score = Score("distance", distance, None, metrics, answers)
        self.keep.offer(NAME, self.elastic.carved(NAME), self.state.global_step, score)
        found = self.log_scores({"eval_distance": distance})
        seen.append(distance)
        if len(seen) - 1 - int(np.argmin(seen)) >= PATIENCE:
            self.control.should_training_stop = True
        return found

    @cached_property
    def _held(self) -> list[tuple[Mapping[str, Any], Outputs, float]]:
        """Batches of held-out rows, what the teacher says to them, and the loss of exactly that."""
        task, encoder = self.scorer.task, self.scorer.encoder
        dataset = FeatureDataset(task, self.scorer.examples, encoder, labelled=False)
        collate = Collator(encoder, {*self.inputs, *self.teacher_inputs})
        order = sorted(range(len(dataset)), key=lambda i: -len(dataset.features[i]))
        found = []
        for first in range(0, len(order), BATCH):
            batch = self._prepare_inputs(collate([dataset[i] for i in order[first : first + BATCH]]))
            taught, _ = self._teach(batch)
            found.append((batch, taught, self._loss(taught, taught, batch)))
        return found

    def _distance(self) -> float:
        model, total, rows = self.elastic.model, 0.0, 0
        was = model.training
        model.eval()
        with self.shown.track("scoring", len(self.scorer.examples)) as advance, torch.no_grad():
            for batch, taught, least in self._held:
                feed = {name: batch[name] for name in self.inputs if name in batch}
                with self.compute_loss_context_manager():
                    outputs = as_tuple(model(**feed), self.outputs)
                count = len(batch["input_ids"])
                total += count * (self._loss(outputs, taught, batch) - least)
                rows += count
                advance(count)
        model.train(was)
        return total / max(rows, 1)

    def _loss(self, outputs: Outputs, taught: Outputs, batch: Mapping[str, Any]) -> float:
        counts = Counts.of([batch])
        return float(logits_loss(outputs, taught, self.kind, mask_of(batch), counts))
