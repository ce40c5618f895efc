"""Settings of the steps that prune and train, made from the options; what cannot work is refused before any work."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UserError, wrong_option
from ..models.carve import locate, shape_of
from ..models.families import find
from ..models.folder import ModelFolder
from ..options.compress import CompressOptions
from ..prune.dynabert import pruning_arguments
from ..prune.widths import PruneSettings, Target
from ..qat import QatSettings
from ..qat.training import int8_arguments
from ..quantize.targets import FEWEST_OUTPUTS
from ..strategy import DYNABERT, PRUNE, PRUNE_EMBEDDINGS, QAT, Plan
from ..training.isolated import isolated
from ..training.losses import Criterion, LossSettings
from ..training.teacher import open_teacher
from .parents import options_for


def check_pruning(
    folder: ModelFolder, options: CompressOptions, plans: Sequence[Plan], training: Mapping[str, Any]
) -> int:
    """Refuse widths, families, teachers and training options that cannot work; return how many models will be made.

    Costs one reading of the weights where a plan prunes heads and neurons.
    """
    groups = {plan.pruning for plan in plans}
    if all(steps in ((), (PRUNE_EMBEDDINGS,)) for steps in groups):
        return len(groups - {()})
    find(folder.config)
    if any(DYNABERT in steps for steps in groups):
        _check_temperature(folder, options)
        with isolated():
            pruning_arguments(training, Path("-"), options.seed)
    if options.teacher_model_name_or_path is not None and trains_cut(options, groups):
        _refuse_teacher(", or leave one out")
    model = folder.load()
    settings, family = prune_settings(options), find(model)
    full = shape_of(model, family)
    open_teacher(model, family, settings)
    targets, _ = settings.targets(full) if any(has_widths(steps) for steps in groups) else ((), ())
    if any(has_widths(plan.steps) and plan.quantizer for plan in plans):
        _check_wide_enough(targets, int(locate(model, family).config.hidden_size))
    speeds = len(options.target_speedup or ()) or 1
    return sum(len(targets) if has_widths(steps) else speeds if PRUNE in steps else 1 for steps in groups if steps)


def check_int8_training(
    folder: ModelFolder, options: CompressOptions, plans: Sequence[Plan], training: Mapping[str, Any]
) -> None:
    """Refuse teachers, families and training options that cannot work. Reads a teacher's weights where one is named."""
    trained = [plan for plan in plans if plan.quantizer == QAT]
    if not trained:
        return
    with isolated():
        int8_arguments(training, Path("-"), options.seed)
    _check_temperature(folder, options)
    hidden = options.losses(QAT)["distill_hidden"] > 0
    family = find(folder.config) if hidden else None
    named = options.teacher_model_name_or_path
    if named is None:
        return
    if any(PRUNE_EMBEDDINGS in plan.steps for plan in trained):
        _refuse_teacher()
    shallow = any(DYNABERT in plan.steps for plan in trained) and any(depth != 1 for depth in options.depth_mult_list)
    if hidden and shallow:
        what = "With '--depth_mult_list' qat trains models with fewer layers than '--teacher_model_name_or_path' has."
        raise UserError(what, hint="Set --distill_hidden 0 to learn from its answers alone.", option="depth_mult_list")
    open_teacher(folder.load(), family, qat_settings(options, trained[0], Path(named)))


def prune_settings(options: CompressOptions, criterion: Criterion | None = None) -> PruneSettings:
    """The options of `dynabert` as it takes them; the criterion counts where labels do."""
    named = options.teacher_model_name_or_path
    chosen = options_for(PruneSettings, options) | options.losses(DYNABERT)
    settings = PruneSettings(**chosen, teacher=None if named is None else Path(named))
    return replace(settings, criterion=criterion) if settings.needs_labels else settings


def losses_after_prune(
    options: CompressOptions, criterion: Criterion | None, teacher: Path | ModelFolder
) -> LossSettings:
    """The losses of `dynabert` after `prune`; the criterion counts where labels do."""
    losses = options.losses(DYNABERT)
    return LossSettings(**losses, teacher=teacher, criterion=criterion if losses["label_loss"] > 0 else None)


def qat_settings(
    options: CompressOptions, plan: Plan, teacher: Path | ModelFolder | None, criterion: Criterion | None = None
) -> QatSettings:
    """The options of `qat` as it takes them; the criterion counts where labels do."""
    chosen = options_for(QatSettings, options) | options.losses(QAT)
    chosen["activation_quantize_type"] = options.activation_type(plan)
    learnt = criterion if options.losses(QAT)["label_loss"] > 0 else None
    return QatSettings(**chosen, teacher=teacher, criterion=learnt)


def has_widths(steps: Collection[str]) -> bool:
    """Whether `dynabert` chooses the shapes; after `prune` it trains those that are there."""
    return DYNABERT in steps and PRUNE not in steps


def trains_cut(options: CompressOptions, groups: Collection[tuple[str, ...]]) -> bool:
    """Whether a model is trained whose vocabulary was cut before.

    Not where the full one is trained as well and all tokens in use stay: training rows then have the same tokens and
    logits with and without the cut, so that one training serves both, and its models are cut afterwards.
    """
    if (PRUNE_EMBEDDINGS, PRUNE, DYNABERT) in groups:
        return True
    return (PRUNE_EMBEDDINGS, DYNABERT) in groups and ((DYNABERT,) not in groups or options.max_vocab_size is not None)


def _check_temperature(folder: ModelFolder, options: CompressOptions) -> None:
    """Refuse a temperature where answers are no probabilities."""
    if options.distill_temperature != 1 and folder.task.loss == "regression":
        what = "has no effect on a regression, whose answers are no probabilities."
        raise wrong_option("distill_temperature", what, hint="Leave it out.")


def _refuse_teacher(way_out: str = "") -> None:
    what = "cannot be used where the vocabulary is cut before training."
    hint = f"The teacher would need the same cut. Cut its vocabulary and the model's first{way_out}."
    raise wrong_option("teacher_model_name_or_path", what, hint=hint)


def _check_wide_enough(targets: Sequence[Target], hidden: int) -> None:
    """Refuse widths whose layers would all be too small to become INT8: better now than after the training."""
    for target in targets:
        widest = max(hidden, *target.shape.ffn)
        if widest < FEWEST_OUTPUTS:
            what = f"{target.name} would leave everything float: its layers have {widest} outputs at most"
            raise UserError(f"{what}, and INT8 pays from {FEWEST_OUTPUTS} on.", hint="Ask for wider ones, or dynabert.")
