"""The pruned and the trained models of a run: plans that need the same cut or training share it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .. import tasks
from ..errors import UserError
from ..measure.benchmark import Setting
from ..models.carve import Shape, shape_of
from ..models.families import find
from ..models.families.family import longest
from ..models.folder import NOTES, ModelFolder
from ..processes import on_all
from ..prune.distil_shape import distil_shape
from ..prune.dynabert import Pruned, train_widths
from ..prune.latency import LatencyTable
from ..prune.vocabulary import PrunedVocabulary, prune_vocabulary
from ..qat import Calibrated, train_int8
from ..quantize.skip import fits
from ..quantize.targets import find_targets
from ..strategy import DYNABERT, PRUNE, PRUNE_EMBEDDINGS, QAT, Plan
from ..training.distillation import TrainingRun
from .candidate import link
from .check_models import has_widths, losses_after_prune, prune_settings, qat_settings, trains_cut
from .make_shots import ShotMaker
from .parents import Parent, RunContext, open_made
from .shape_timer import timed_as

VOCABULARY = "vocabulary"
"""Folder of a model that only lost tokens, under torch/."""


@dataclass
class ParentMaker:
    """Makes the models that plans ask for, each once. A training that was killed goes on, in the run's `work`.

    `until`: when trainings have to end, by `time.monotonic`; None: no limit.
    """

    origin: Parent
    run: RunContext
    until: float | None = None

    def make(self, plans: Sequence[Plan], targets: Sequence[float] = ()) -> list[Parent]:
        """Prune and train as plans ask, and export every model; plans with equal steps share theirs.

        `targets`: speed-ups for plans that prune to order. After a parent comes the model that was trained for its
        plans of `qat`, if it has any.
        """
        found: list[Parent] = []
        for steps in dict.fromkeys(plan.pruning for plan in plans):
            alike = tuple(plan for plan in plans if plan.pruning == steps)
            if PRUNE in steps:
                found += self._shoot(alike, targets)
            else:
                found += [replace(parent, plans=alike) for parent in self._prune(steps)]
        return [made for parent in found for made in self._train(parent)]

    def speed_range(self, plan: Plan) -> tuple[float, float]:
        """How many times as fast as FP32 the unpruned model is by a plan that prunes, and how fast without layers."""
        return self._maker(plan).speed_range(plan.quantizer)

    def check_targets(self, plans: Sequence[Plan], targets: Sequence[float]) -> None:
        """Refuse speed-ups that cannot be reached, before any model is made; costs the latency tables."""
        for plan in plans:
            if PRUNE in plan.steps:
                most = self.speed_range(plan)[1]
                for target in targets:
                    if target > most:
                        what = f"A speed-up of {target:g} cannot be reached: without any layer it is {most:.3g}."
                        raise UserError(what, hint="Ask for less.", option="target_speedup")

    def full_shape(self) -> Shape | None:
        """The shape of the user's model, where heads and neurons of it are pruned. Reads its weights."""
        if not any(has_widths(plan.steps) or PRUNE in plan.steps for plan in self.run.plans):
            return None
        model = self.origin.folder.load()
        return shape_of(model, find(model))

    def tables(self) -> tuple[LatencyTable, ...]:
        """What was measured of the costs of layers."""
        makers = (maker for name, maker in vars(self).items() if name in ("_shots", "_cut_shots"))
        return tuple(timer.table for maker in makers for timer in maker.timers.values())

    def _shoot(self, plans: Sequence[Plan], targets: Sequence[float]) -> list[Parent]:
        """The models that are pruned to order, for plans with equal pruning steps, and distilled where these say so."""
        steps, found = plans[0].pruning, []
        maker = self._maker(plans[0])
        for kind in dict.fromkeys(timed_as(plan.quantizer) for plan in plans):
            alike = tuple(plan for plan in plans if timed_as(plan.quantizer) == kind)
            for target in targets:
                shot = maker.make(kind, target, self.until)
                made = self._distil(shot, maker.base) if DYNABERT in steps else shot
                _publish_torch(made.folder, self.run.scratch / "torch" / made.name)
                found.append(self._with_rows(replace(made, plans=alike)))
        return found

    def _maker(self, plan: Plan) -> ShotMaker:
        return self._cut_shots if PRUNE_EMBEDDINGS in plan.steps else self._shots

    @cached_property
    def setting(self) -> Setting:
        """Batch, length and threads at which speed-ups are measured."""
        return _setting_of(self.origin, self.run)

    @cached_property
    def _shots(self) -> ShotMaker:
        return ShotMaker(self.origin, self._prune(())[0], self.run, self.setting)

    @cached_property
    def _cut_shots(self) -> ShotMaker:
        base = self._export(VOCABULARY, *self._cut_origin)
        return ShotMaker(self.origin, base, self.run, self.setting, f"{PRUNE_EMBEDDINGS}-")

    def _distil(self, shot: Parent, base: Parent) -> Parent:
        """Train a repaired model further, if that helps. The model that it was cut out of is the teacher.

        Repaired weights are no slices of one network: each model has a training of its own.
        """
        options, name = self.run.options, f"{shot.name}-{DYNABERT}"
        named = options.teacher_model_name_or_path
        settings = losses_after_prune(
            options, self.run.request.criterion, base.folder if named is None else Path(named)
        )
        training, progress = self._training(shot.folder, name), self.run.progress
        done = on_all(distil_shape, training, settings, progress=progress)
        made = open_made(shot.folder.at(done.folder), shot, self.run.scratch / "fp32-of" / name, self.run)
        return replace(made, name=name, distilled=done)

    def _prune(self, steps: tuple[str, ...]) -> list[Parent]:
        """The models for these pruning steps, which do not include `prune`; without any step the user's own."""
        folder, prefix = self.origin.folder, f"{PRUNE_EMBEDDINGS}-"
        if not steps:
            rows = self.run.rows.encode(folder.task, folder.encoder)
            return [replace(self.origin, rows=rows, skip_layers=self._patterns)]
        if steps == (PRUNE_EMBEDDINGS,):
            return [self._export(VOCABULARY, *self._cut_origin)]
        if steps == (DYNABERT,):
            return [self._export(pruned.name, folder.at(pruned.folder), None, pruned) for pruned in self._widths]
        if trains_cut(self.run.options, {plan.pruning for plan in self.run.plans}):
            cut, vocabulary = self._cut_origin
            trained = self._train_widths(cut, prefix)
            return [
                self._export(f"{prefix}{pruned.name}", cut.at(pruned.folder), vocabulary, pruned) for pruned in trained
            ]
        cuts = [self._cut(folder.at(pruned.folder), f"{prefix}{pruned.name}") for pruned in self._widths]
        pairs = zip(cuts, self._widths, strict=True)
        return [self._export(f"{prefix}{pruned.name}", *made, pruned) for made, pruned in pairs]

    def _train(self, parent: Parent) -> list[Parent]:
        """The parent without its plans of `qat`, and the model that was trained for those."""
        trained = tuple(plan for plan in parent.plans if plan.quantizer == QAT)
        if not trained:
            return [parent]
        options, samples = self.run.options, parent.rows.samples
        if samples is None:
            raise ValueError("Training for INT8 starts from calibration rows.")
        label = f"{parent.name}-{QAT}".strip("-")
        done = on_all(
            train_int8,
            self._training(parent.folder, label),
            Calibrated(parent.proto, samples, parent.skip_layers),
            qat_settings(options, trained[0], self._teacher(trained[0]), self.run.request.criterion),
            progress=self.run.progress,
        )
        made = open_made(parent.folder.at(done.folder), parent, self.run.scratch / "fp32-of" / label, self.run)
        others = tuple(plan for plan in parent.plans if plan not in trained)
        return [replace(parent, plans=others), replace(made, plans=trained, trained=done)]

    @cached_property
    def _patterns(self) -> tuple[str, ...]:
        """The layers that the user leaves float; "auto" names none yet."""
        return () if self.run.options.skip_layers == ("auto",) else self.run.options.skip_layers

    @cached_property
    def _cut_origin(self) -> tuple[ModelFolder, PrunedVocabulary]:
        return self._cut(self.origin.folder, VOCABULARY)

    @cached_property
    def _widths(self) -> tuple[Pruned, ...]:
        return self._train_widths(self.origin.folder)

    def _cut(self, folder: ModelFolder, name: str) -> tuple[ModelFolder, PrunedVocabulary]:
        place, rows = self.run.scratch / "cut" / name, self.run.rows
        done = prune_vocabulary(
            folder,
            [*rows.train, *rows.unlabelled],
            place,
            eval_examples=rows.scoring if rows.labelled else (),
            max_vocab_size=self.run.options.max_vocab_size,
            progress=self.run.progress,
        )
        return folder.at(place), done

    def _training(self, folder: ModelFolder, name: str) -> TrainingRun:
        """A training of this run; what it keeps for later lies under its name."""
        run, rows = self.run, self.run.rows.searched
        training, seed = run.request.training, run.options.seed
        place = run.work / name
        return TrainingRun(folder, rows.train, rows.scoring, place, training, seed, rows.unlabelled, self.until)

    def _train_widths(self, folder: ModelFolder, prefix: str = "") -> tuple[Pruned, ...]:
        options = self.run.options
        return on_all(
            train_widths,
            self._training(folder, f"{prefix}widths"),
            prune_settings(options, self.run.request.criterion),
            input_dtype=options.input_dtype,
            progress=self.run.progress,
        )

    def _export(
        self, name: str, folder: ModelFolder, vocabulary: PrunedVocabulary | None, pruned: Pruned | None = None
    ) -> Parent:
        made = open_made(folder, self.origin, self.run.scratch / "fp32-of" / name, self.run)
        _publish_torch(folder, self.run.scratch / "torch" / name)
        return self._with_rows(replace(made, name=name, pruned=pruned, vocabulary=vocabulary))

    def _with_rows(self, made: Parent) -> Parent:
        """A model with the rows as its own tokenizer encodes them, and those of its layers that stay float."""
        rows, layers = self.run.rows.encode(made.task, made.encoder), _fitting(self._patterns, made.proto)
        return replace(made, rows=rows, skip_layers=layers)

    def _teacher(self, plan: Plan) -> Path | ModelFolder | None:
        """The teacher: the folder that the user named; for a pruned model the unpruned one; else the model itself.

        Where hidden states are compared a pruned model learns from itself in FP32: it may have fewer layers. The
        unpruned model has the vocabulary of the pruned one.
        """
        named = self.run.options.teacher_model_name_or_path
        if named is not None:
            return Path(named)
        if not {PRUNE, DYNABERT} & set(plan.steps) or self.run.options.losses(QAT)["distill_hidden"]:
            return None
        return self._cut_origin[0] if PRUNE_EMBEDDINGS in plan.steps else self.origin.folder


def _setting_of(origin: Parent, run: RunContext) -> Setting:
    """The setting that the options name; without a length, the mean length of the rows that score."""
    options, config = run.options, origin.folder.config
    length = options.target_length
    most = longest(config) or origin.task.max_seq_length
    if length is not None and length > most:
        what = f"The '--target_length' option is {length}; the model reads {most} tokens at most."
        raise UserError(what, option="target_length")
    if length is None:
        features = origin.task.features(run.rows.scoring, origin.encoder)
        length = round(float(np.mean([len(feature) for feature in features])))
    return Setting(options.target_batch, min(length, most), options.target_threads)


def _fitting(patterns: Sequence[str], proto: Any) -> tuple[str, ...]:
    """The patterns that fit a layer of this graph: a model with fewer layers may lack those that others fit."""
    if not patterns:
        return ()
    targets = find_targets(proto)
    names = [*(layer.name for layer in targets.layers), *targets.left_float]
    names += [tensor.name for tensor in proto.graph.initializer]
    return tuple(pattern for pattern in patterns if any(fits(name, pattern) for name in names))


def _publish_torch(folder: ModelFolder, place: Path) -> None:
    """Link a model's files into a second folder, with the task as this run had it."""
    for path in sorted(folder.path.iterdir()):
        if path.name != NOTES:
            link(path, place / path.name)
    notes = json.loads((folder.path / NOTES).read_text(encoding="utf-8"))
    text = json.dumps({**notes, "task": tasks.to_json(folder.task)}, ensure_ascii=False, indent=2) + "\n"
    (place / NOTES).write_text(text, encoding="utf-8")
