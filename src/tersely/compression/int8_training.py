"""Models trained for INT8, checked before any work: of each parent with a plan of `qat` comes one more parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UserError, wrong_option
from ..graphs.first_position import keep_first_position
from ..models.families import find
from ..models.folder import ModelFolder
from ..options.compress import CompressOptions
from ..processes import on_all
from ..qat import Calibrated, QatSettings, train_int8
from ..qat.training import int8_arguments
from ..strategy import DYNABERT, PRUNE_EMBEDDINGS, QAT, Plan
from ..training.distillation import TrainingRun
from ..training.isolated import isolated
from ..training.losses import Criterion
from ..training.teacher import open_teacher
from .parents import Parent
from .pruning import Pruning, check_temperature
from .source import open_pruned


def qat_settings(
    options: CompressOptions,
    plan: Plan,
    teacher: Path | ModelFolder | None = None,
    criterion: Criterion | None = None,
) -> QatSettings:
    """The options of `qat` as it takes them; the criterion counts where labels do."""
    return QatSettings(
        weight_quantize_type=options.weight_quantize_type,
        activation_quantize_type=options.activation_type(plan),
        moving_rate=options.moving_rate,
        use_pact=options.use_pact,
        cpu_classes=options.cpu_classes,
        algo_list=options.algo_list,
        smooth=options.smooth,
        **options.losses(QAT),
        teacher=teacher,
        criterion=criterion if options.learns_from_labels(QAT) else None,
    )


def check_int8_training(
    folder: ModelFolder, options: CompressOptions, plans: Sequence[Plan], training: Mapping[str, Any]
) -> None:
    """Refuse teachers, families and training options that cannot be. Reads a teacher's weights where one is named."""
    asking = [plan for plan in plans if plan.quantizer == QAT]
    if not asking:
        return
    with isolated():
        int8_arguments(training, Path("-"), options.seed)
    check_temperature(folder, options)
    hidden = options.losses(QAT)["distill_hidden"] > 0
    family = find(folder.config) if hidden else None
    named = options.teacher_model_name_or_path
    if named is None:
        return
    if any(PRUNE_EMBEDDINGS in plan.steps for plan in asking):
        what = "cannot be used where the vocabulary is cut before training."
        hint = "The teacher would need the same cut. Cut its vocabulary and the model's first."
        raise wrong_option("teacher_model_name_or_path", what, hint=hint)
    shallow = any(DYNABERT in plan.steps for plan in asking) and any(depth != 1 for depth in options.depth_mult_list)
    if hidden and shallow:
        what = "With '--depth_mult_list' qat trains models with fewer layers than '--teacher_model_name_or_path' has."
        raise UserError(what, hint="Set --distill_hidden 0 to learn from its answers alone.", option="depth_mult_list")
    open_teacher(folder.load(), family, qat_settings(options, asking[0], Path(named)))


def train_parents(parents: Sequence[Parent], pruning: Pruning, scratch: Path) -> list[Parent]:
    """The same parents without their plans of `qat`, and behind each the model that was trained for those."""
    found = []
    for parent in parents:
        asking = tuple(plan for plan in parent.plans if plan.quantizer == QAT)
        if not asking:
            found.append(parent)
            continue
        found.append(replace(parent, plans=tuple(plan for plan in parent.plans if plan not in asking)))
        found.append(_train(parent, asking, pruning, scratch))
    return found


def _train(parent: Parent, asking: tuple[Plan, ...], pruning: Pruning, scratch: Path) -> Parent:
    options, samples = pruning.options, parent.rows.samples
    if samples is None:
        raise ValueError("Training for INT8 starts from calibration rows.")
    folder = parent.smaller.folder if parent.smaller else pruning.folder
    label = f"{parent.name}-{QAT}".strip("-")
    rows, work = pruning.rows, pruning.work / label
    done = on_all(
        train_int8,
        TrainingRun(folder, rows.train, rows.scoring, work, pruning.training, options.seed),
        Calibrated(parent.source.proto, samples, parent.skip_layers),
        qat_settings(options, asking[0], _teacher(asking[0], pruning), pruning.criterion),
        progress=pruning.progress,
    )
    made, place = folder.at(done.folder), scratch / "fp32-of" / label
    source = open_pruned(made, parent.source, place, input_dtype=options.input_dtype, progress=pruning.progress)
    keep_first_position(source.proto)
    return replace(parent, source=source, plans=asking, trained=done)


def _teacher(plan: Plan, pruning: Pruning) -> Path | ModelFolder | None:
    """Who teaches: the folder that was named; of a pruned model the unpruned one; else the model itself.

    Where hidden states are compared a pruned model learns from itself in FP32: it may have fewer layers.
    """
    named = pruning.options.teacher_model_name_or_path
    if named is not None:
        return Path(named)
    if DYNABERT not in plan.steps or pruning.options.losses(QAT)["distill_hidden"]:
        return None
    return pruning.unpruned(plan.pruning)
