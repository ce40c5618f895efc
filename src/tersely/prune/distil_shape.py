"""`distil_shape`: train a pruned and repaired model on, taught by the model that it was cut out of.

What it begins with is good already, and a rate that is too high only takes it away: short trainings at falling rates
show which one to take, the first that helps. Held-out rows, which no step sees, say how far the answers are from the
teacher's; what is nearest is kept, step 0 among the candidates, and training ends when it comes no nearer. Labels are
not needed.
"""

from __future__ import annotations

import json
import math
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
from ..engines.cpu import cpu
from ..engines.torch import as_tuple
from ..errors import UserError, fill
from ..measure.score import Answers, Score
from ..models.carve import shape_of, twin
from ..models.families import Family, find
from ..progress import SILENT, Progress
from ..training.arguments import DEFAULTS, steps_of
from ..training.batches import AlikeLengths, Collator, FeatureDataset
from ..training.checkpoints import fingerprint
from ..training.distillation import DistilTrainer, Method, TrainingRun, check_rows, distil
from ..training.isolated import isolated
from ..training.losses import Counts, LossSettings, Outputs, label_loss, logits_loss, mask_of
from ..training.model_folder import save_carved
from .dynabert import ElasticTrainer, pruning_arguments
from .elastic import Elastic

RATES = (1e-4, 6e-5, 3e-5, 1e-5)
"""Learning rates that are looked at, one after another: 1e-4 moved MRPC's logits away from every repaired start, 3e-5
did not. A look is a short training of its own, with a rate that rises and falls as in the long one: at a rate that
stays, the lowest of all looks best."""
ROWS, STEP_POSITIONS, WARM_UP, EPOCHS = 16, 2048, 0.05, 10.0
"""Rows of a step (half as many where they hold more tokens), the share of steps in which the rate rises, passes over
the rows where time is the limit, unless the options say. (MSRA-NER came nearer by 16 rows a step than by 8 or 32 in
equal time.)"""
LOOK, FEWEST_LOOKED, MOST_LOOKED = 0.04, 20, 50
"""The share of all steps that a look takes, and its bounds."""
SCORINGS = 40
"""A training is scored so often, unless the options say, and no more often than every `save_steps` steps."""
SCORING = 0.1
"""The share of a time that is limited which scorings may take."""
PATIENCE = 0.4
"""The share of all steps that may come no nearer before training ends: what a falling rate gains comes late."""
HELD_SHARE, MOST_HELD, HELD_POSITIONS = 0.1, 400, 60_000
"""Training rows that no step sees, and their tokens."""
NAME = "distilled"
BATCH = 16


@dataclass(frozen=True)
class Distilled:
    """The trained model, the step that it is of, and how far its answers are from the teacher's on held-out rows.

    `start`: how far they were before the first step. The distance is the loss that is trained with, less what it is for
    the teacher's own answers: below 0 where labels teach too, and it has become better than its teacher.
    """

    folder: Path
    step: int
    steps: int
    rate: float
    start: float
    distance: float


@dataclass(frozen=True)
class _Course:
    """How a training goes, settled by looks; `mark`: of which training; `every`: steps from scoring to scoring."""

    mark: str
    rate: float
    steps: int
    every: int


def distil_shape(run: TrainingRun, settings: LossSettings, *, progress: Progress = SILENT) -> Distilled:
    """Train a pruned model to answer as its teacher does, and give it where it came nearest.

    As many steps as the options say, or as there is time for. Where the options set a learning rate there are no looks.
    A step costs a forward of the teacher, and forward and backward of the model.
    """
    labels = "'label_loss'" if settings.label_loss > 0 else None
    check_rows(run, "to distil with", "a step", labels=labels, hint="--label_loss 0")
    run = _held_out(replace(run, training={**_defaults(run), **run.training}), settings)
    course = _course(run, settings, progress)
    training = {"save_steps": course.every, **run.training, "learning_rate": course.rate, "max_steps": course.steps}
    best = distil(replace(run, training=training), _OneShape(run, settings), progress)[NAME]
    start = best.score.metrics["start"]
    return Distilled(best.folder, best.step, course.steps, course.rate, start, best.score.value)


def _defaults(run: TrainingRun) -> dict[str, Any]:
    """How this trains where the options do not say. In bf16 where the CPU has it: steps take half the time."""
    some = run.folder.task.features(run.rows[:MOST_HELD], run.folder.encoder)
    is_long = ROWS * float(np.mean([len(feature) for feature in some])) > STEP_POSITIONS if some else False
    found: dict[str, Any] = {"per_device_train_batch_size": ROWS // 2 if is_long else ROWS}
    if "warmup_ratio" not in run.training:
        found["warmup_steps"] = WARM_UP
    if run.until is not None and "max_steps" not in run.training:
        found["num_train_epochs"] = EPOCHS
    if not run.training.get("fp16") and cpu().bf16 and not torch.cuda.is_available():
        found["bf16"] = True
    return found


def _held_out(run: TrainingRun, settings: LossSettings) -> TrainingRun:
    """The run without a share of its rows, which judge in the place of the eval rows."""
    rows = run.rows if settings.distils else list(run.train)
    if len(rows) < 2:
        raise UserError("There is one training row; two are needed at least.", hint="Give more with --train_file.")
    count = max(1, min(MOST_HELD, round(HELD_SHARE * len(rows))))
    drawn = np.random.default_rng(run.seed).permutation(len(rows))[:count].tolist()
    tokens = np.zeros(count)
    for feature in run.folder.task.features([rows[number] for number in drawn], run.folder.encoder):
        tokens[feature.example] += len(feature)
    held = {number for number, before in zip(drawn, np.cumsum(tokens) - tokens, strict=True) if before < HELD_POSITIONS}
    train = [row for number, row in enumerate(run.train) if number not in held]
    others = [row for number, row in enumerate(run.unlabelled, len(run.train)) if number not in held]
    return replace(run, train=train, unlabelled=others, evaluation=[rows[number] for number in sorted(held)])


def _course(run: TrainingRun, settings: LossSettings, progress: Progress) -> _Course:
    """The rate and the number of steps: as the options say, else what looks find; kept for a run that goes on."""
    folder, features = run.folder, len(run.folder.task.features(run.rows, run.folder.encoder))
    with isolated():
        arguments = pruning_arguments(run.training, run.work, run.seed)
        steps, is_first = steps_of(arguments, features), arguments.process_index == 0
        mark = fingerprint(folder.path, folder.task, arguments, run.rows, [settings.as_json()])
    rates = (float(arguments.learning_rate),) if "learning_rate" in run.training else RATES
    every = max(DEFAULTS["save_steps"], steps // SCORINGS)
    if len(rates) == 1 and run.until is None:
        return _Course("", rates[0], steps, every)
    place = run.work.with_name(f"{run.work.name}-course.json")
    with suppress(OSError, ValueError, UserError):
        known = fill(_Course, json.loads(place.read_text(encoding="utf-8")), "The course")
        if known.mark == mark:
            return known
    looked = min(steps, max(FEWEST_LOOKED, min(MOST_LOOKED, round(LOOK * steps))))
    for rate in rates:
        look = {**run.training, "learning_rate": rate, "max_steps": looked, "save_steps": looked}
        work, method = run.work.with_name(f"{run.work.name}-look-{rate:g}"), _OneShape(run, settings)
        found = distil(replace(run, training=look, work=work, until=None), method, progress)[NAME].score
        if found.value < found.metrics["start"]:
            break
    if run.until is not None:
        steps, scorings = method.pace.within(run.until - time.monotonic(), steps)
        steps = _fewest(steps)
        every = max(1, steps // scorings)
    course = _Course(mark, rate, steps, every)
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


@dataclass
class _Pace:
    """Steps between the last two scorings, their seconds, and those of a scoring."""

    steps: int = 0
    trained: float = 0.0
    scored: float = 0.0

    def within(self, seconds: float, most: int) -> tuple[int, int]:
        """How many steps there is time for, of `most`, and how many scorings; all where nothing was timed."""
        scorings = max(1, min(SCORINGS, int(SCORING * seconds / max(self.scored, 1e-9))))
        left = (seconds - scorings * self.scored) * self.steps
        return max(1, min(most, int(left / self.trained))) if self.steps else most, scorings


@final
class _OneShape(Method):
    """One model at its own shape, judged by how far its answers are from its teacher's."""

    arguments = staticmethod(pruning_arguments)
    file, scores_start, less_is_better = "config.json", True, True

    def __init__(self, run: TrainingRun, settings: LossSettings) -> None:
        self.run, self.settings = run, settings
        self.family = find(run.folder.config)
        self.pace = _Pace()

    def begin(self, model: Any) -> tuple[Sequence[str], Family | None]:
        return [NAME], self.family

    def prepare(self, model: Any, begun: bool, progress: Progress) -> None:
        """Nothing: what is trained was exported before."""
        return

    def student(self, model: Any, begun: bool, steps: int, progress: Progress) -> Elastic:
        shape = shape_of(model, self.family).standing_alone
        return Elastic(twin(model, torch.clone), {NAME: shape}, self.family)

    def trainer(self, **parts: Any) -> DistilTrainer:
        return _ShapeTrainer(self.pace, **parts)

    def write(self, network: Any, place: Path) -> None:
        save_carved(network, place, source=self.run.folder.path, overwrite=True)


class _ShapeTrainer(ElasticTrainer):
    """Evaluating measures how far the teacher is on held-out rows, keeps the nearest, and ends what is of no use."""

    def __init__(self, pace: _Pace, **parts: Any) -> None:
        super().__init__(**parts)
        self.pace, self._since = pace, (0, math.inf)

    def _get_train_sampler(self, *_: Any) -> AlikeLengths:
        lengths = [len(feature) for feature in self.train_dataset.features]
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return AlikeLengths(lengths, self.args.train_batch_size * self.args.world_size, seed)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Keep the model if it is nearer than before."""
        began = time.monotonic()
        step, since = self._since
        if since < began:
            self.pace.steps, self.pace.trained = self.state.global_step - step, began - since
        held = self._held
        scored = time.monotonic()
        distance = self._distance(held)
        seen = {entry["step"]: entry["eval_distance"] for entry in self.state.log_history if "eval_distance" in entry}
        seen[self.state.global_step] = distance
        metrics = {"distance": distance, "start": next(iter(seen.values()))}
        answers = Answers(len(self.scorer.examples), time.monotonic() - began, [], [])
        score = Score("distance", distance, None, metrics, answers)
        self.keep.offer(NAME, self.elastic.carved(NAME), self.state.global_step, score)
        found = self.log_scores({"eval_distance": distance})
        self._since = self.state.global_step, time.monotonic()
        self.pace.scored = self._since[1] - scored
        if self.state.global_step - min(seen, key=lambda step: seen[step]) >= PATIENCE * self.state.max_steps:
            self.control.should_training_stop = True
        return found

    @cached_property
    def _held(self) -> list[tuple[Mapping[str, Any], Outputs, float]]:
        """Batches of held-out rows, what the teacher says to them, and the loss of exactly that."""
        task, encoder = self.scorer.task, self.scorer.encoder
        labelled = self.settings.label_loss > 0
        dataset = FeatureDataset(task, self.scorer.examples, encoder, labelled=labelled)
        collate = Collator(encoder, {*self.inputs, *self.teacher_inputs})
        order = sorted(range(len(dataset)), key=lambda i: -len(dataset.features[i]))
        found = []
        for first in range(0, len(order), BATCH):
            batch = self._prepare_inputs(collate([dataset[i] for i in order[first : first + BATCH]]))
            taught, _ = self.taught(batch)
            found.append((batch, taught, self._loss(taught, taught, batch)))
        return found

    def _distance(self, held: Sequence[tuple[Mapping[str, Any], Outputs, float]]) -> float:
        model, total, rows = self.elastic.model, 0.0, 0
        was = model.training
        model.eval()
        with self.shown.track("scoring", len(self.scorer.examples)) as advance, torch.no_grad():
            for batch, taught, least in held:
                feed = {name: batch[name] for name in self.inputs if name in batch}
                outputs = as_tuple(model(**feed), self.outputs)
                count = len(batch["input_ids"])
                total += count * (self._loss(outputs, taught, batch) - least)
                rows += count
                advance(count)
        model.train(was)
        return total / max(rows, 1)

    def _loss(self, outputs: Outputs, taught: Outputs, batch: Mapping[str, Any]) -> float:
        """What is learnt, of answers and labels, each with its weight; of answers alone where neither is."""
        settings, counts = self.settings, Counts.of([batch])
        weight = settings.distill_logits or float(not settings.label_loss)
        found = weight * logits_loss(outputs, taught, self.kind, mask_of(batch), counts) if weight else 0.0
        if settings.label_loss:
            found += settings.label_loss * label_loss(outputs, batch, self.kind, counts, settings.criterion)
        return float(found)
