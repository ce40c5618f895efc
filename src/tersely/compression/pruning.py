"""The smaller torch models of a run, checked before any work: one cut of the vocabulary, one training for all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import tasks
from ..errors import UserError, wrong_option
from ..models.carve import locate, shape_of
from ..models.families import find
from ..models.folder import NOTES, ModelFolder
from ..options.compress import CompressOptions
from ..processes import on_all
from ..progress import Progress
from ..prune.dynabert import Pruned, pruning_arguments, train_widths
from ..prune.vocabulary import PrunedVocabulary, prune_vocabulary
from ..prune.widths import PruneSettings, Target
from ..quantize.targets import FEWEST_OUTPUTS
from ..strategy import DYNABERT, PRUNE_EMBEDDINGS, Plan
from ..tasks.sequence_classification import REGRESSION
from ..training.distillation import TrainingRun
from ..training.isolated import isolated
from ..training.losses import Criterion, kind_of
from ..training.teacher import open_teacher
from .candidate import link
from .divide import DividedRows

VOCABULARY = "vocabulary"
"""Folder of a model that only lost tokens, under torch/."""


@dataclass(frozen=True)
class Smaller:
    """A model folder that pruning made, the name that it goes by under torch/, and how it came about."""

    name: str
    folder: ModelFolder
    pruned: Pruned | None = None
    vocabulary: PrunedVocabulary | None = None


def prune_settings(options: CompressOptions, criterion: Criterion | None = None) -> PruneSettings:
    """The options of `dynabert` as it takes them; the criterion counts where labels do."""
    teacher, losses = options.teacher_model_name_or_path, options.losses(DYNABERT)
    return PruneSettings(
        width_mult_list=options.width_mult_list,
        depth_mult_list=options.depth_mult_list,
        **losses,
        importance=options.importance,
        importance_rows=options.importance_rows,
        teacher=None if teacher is None else Path(teacher),
        criterion=criterion if options.learns_from_labels(DYNABERT) else None,
    )


def check_pruning(
    folder: ModelFolder, options: CompressOptions, plans: Sequence[Plan], training: Mapping[str, Any]
) -> int:
    """Refuse widths, families, teachers and training options that cannot be; gives how many models will be made.

    Costs one reading of the weights where a plan has `dynabert`.
    """
    groups = {plan.pruning for plan in plans}
    if not any(DYNABERT in steps for steps in groups):
        return len(groups - {()})
    find(folder.config)
    check_temperature(folder, options)
    if options.teacher_model_name_or_path is not None and _trains_cut(options, groups):
        what = "cannot be used where the vocabulary is cut before training."
        hint = "The teacher would need the same cut. Cut its vocabulary and the model's first, or leave one out."
        raise wrong_option("teacher_model_name_or_path", what, hint=hint)
    with isolated():
        pruning_arguments(training, Path("-"), options.seed)
    model = folder.load()
    settings, family = prune_settings(options), find(model)
    targets, _ = settings.targets(shape_of(model, family))
    open_teacher(model, family, settings)
    if any(DYNABERT in plan.steps and plan.quantizer for plan in plans):
        _check_wide_enough(targets, int(locate(model, family).config.hidden_size))
    return sum(len(targets) if DYNABERT in steps else 1 for steps in groups if steps)


def check_temperature(folder: ModelFolder, options: CompressOptions) -> None:
    """Refuse a temperature where answers are no probabilities."""
    if options.distill_temperature != 1 and kind_of(folder.task) == REGRESSION:
        what = "has no effect on a regression, whose answers are no probabilities."
        raise wrong_option("distill_temperature", what, hint="Leave it out.")


def _check_wide_enough(targets: Sequence[Target], hidden: int) -> None:
    """Refuse widths whose layers would all be too small to become INT8: better now than after the training."""
    for target in targets:
        widest = max(hidden, *target.shape.ffn)
        if widest < FEWEST_OUTPUTS:
            what = f"{target.name} would leave everything float: its layers have {widest} outputs at most"
            raise UserError(f"{what}, and INT8 pays from {FEWEST_OUTPUTS} on.", hint="Ask for wider ones, or dynabert.")


@dataclass
class Pruning:
    """Makes the models that plans ask for, each once. `work` outlives the run: a training that was killed goes on."""

    folder: ModelFolder
    rows: DividedRows
    options: CompressOptions
    training: Mapping[str, Any]
    groups: frozenset[tuple[str, ...]]
    work: Path
    scratch: Path
    progress: Progress
    criterion: Criterion | None = None

    def models(self, steps: tuple[str, ...]) -> list[Smaller]:
        """The models of one group of pruning steps."""
        if steps == (PRUNE_EMBEDDINGS,):
            return [self._vocabulary]
        if steps == (DYNABERT,):
            return self._trained
        if _trains_cut(self.options, self.groups):
            return self._widths(self._vocabulary.folder, f"{PRUNE_EMBEDDINGS}-")
        return [self._cut(one, f"{PRUNE_EMBEDDINGS}-{one.name}") for one in self._trained]

    def unpruned(self, steps: tuple[str, ...]) -> ModelFolder:
        """The model with all its widths that the models of some pruning steps share their vocabulary with."""
        return self._vocabulary.folder if PRUNE_EMBEDDINGS in steps else self.folder

    @cached_property
    def _vocabulary(self) -> Smaller:
        return self._cut(Smaller("", self.folder), VOCABULARY)

    @cached_property
    def _trained(self) -> list[Smaller]:
        return self._widths(self.folder, "")

    def _widths(self, folder: ModelFolder, prefix: str) -> list[Smaller]:
        vocabulary = self._vocabulary.vocabulary if prefix else None
        work, seed = self.work / f"{prefix}widths", self.options.seed
        done = on_all(
            train_widths,
            TrainingRun(folder, self.rows.train, self.rows.scoring, work, self.training, seed),
            prune_settings(self.options, self.criterion),
            input_dtype=self.options.input_dtype,
            progress=self.progress,
        )
        return [Smaller(f"{prefix}{one.name}", folder.at(one.folder), one, vocabulary) for one in done]

    def _cut(self, model: Smaller, name: str) -> Smaller:
        place = self.scratch / "cut" / name
        done = prune_vocabulary(
            model.folder,
            self.rows.train,
            place,
            eval_examples=self.rows.scoring if self.rows.labelled else (),
            max_vocab_size=self.options.max_vocab_size,
            progress=self.progress,
        )
        return Smaller(name, model.folder.at(place), model.pruned, done)


def publish_torch(model: Smaller, place: Path) -> None:
    """Let the model appear at a place too, with the task as this run had it."""
    for path in sorted(model.folder.path.iterdir()):
        if path.name != NOTES:
            link(path, place / path.name)
    notes = json.loads((model.folder.path / NOTES).read_text(encoding="utf-8"))
    text = json.dumps({**notes, "task": tasks.to_json(model.folder.task)}, ensure_ascii=False, indent=2) + "\n"
    (place / NOTES).write_text(text, encoding="utf-8")


def forget_training(work: Path) -> None:
    """Remove what earlier runs trained."""
    shutil.rmtree(work, ignore_errors=True)


def _trains_cut(options: CompressOptions, groups: frozenset[tuple[str, ...]] | set[tuple[str, ...]]) -> bool:
    """Whether a model is trained whose vocabulary was cut before.

    Not where the full one is trained as well and all tokens in use stay: training rows then have the same tokens and
    logits with and without the cut, so that one training serves both, and its models are cut afterwards.
    """
    return (PRUNE_EMBEDDINGS, DYNABERT) in groups and ((DYNABERT,) not in groups or options.max_vocab_size is not None)
