"""What a trainer's model and rows cannot have, refused before any work."""

from __future__ import annotations

from ..compression.request import Request
from ..errors import UserError, wrong_option
from ..strategy import STEPS, Plan
from .live_model import LiveModel
from .parts import Parts


def check_parts(parts: Parts, run: Request) -> None:
    """Refuse what a live model or its rows cannot have, before anything is read."""
    if run.options.input_infer_model_path is not None:
        what = "is for a bare graph, not for the trainer's model."
        hint = "Use tersely.compress(input_infer_model_path=…), or leave it out."
        raise wrong_option("input_infer_model_path", what, hint=hint)
    for plan in run.options.plans():
        for step in plan.steps:
            if STEPS[step].reads_text:
                what = f"The step '{step}' needs texts: the trainer's datasets are tokenized already."
                raise UserError(what, hint="Save the model and use tersely.compress, or leave the step out.")
        _check_rows(plan, parts)


def _check_rows(plan: Plan, parts: Parts) -> None:
    if parts.train is None and plan.reads_train_rows:
        rest = "+".join(plan.without_train_rows)
        hint = f" or write strategy='{rest}'" if rest else ""
        raise UserError(f"The strategy '{plan.name}' needs a train_dataset.", hint=f"Give the Trainer one{hint}.")
    if parts.evaluation is None and plan.needs != "nothing":
        hint = "Give the Trainer one; only dynamic and embeddings do without."
        raise UserError(f"The strategy '{plan.name}' needs an eval_dataset.", hint=hint)


def check_own(live: LiveModel, scored: bool, parts: Parts, run: Request) -> None:
    """Refuse to train a model of the user's own without a score, or without a loss where labels count."""
    options = run.options
    for plan in options.plans():
        if live.task is not None or plan.needs != "train and eval rows":
            continue
        if not scored:
            what = f"The strategy '{plan.name}' chooses by a score, and that of a model of your own is not known."
            raise UserError(what, hint="Give compress(custom_evaluate=…), or the Trainer compute_metrics.")
        if parts.criterion is None and any(options.learns_from_labels(step) for step in plan.trained):
            what = f"The strategy '{plan.name}' needs a loss, and that of a model of your own is not known."
            raise UserError(what, hint="Give the Trainer a criterion, or set importance='teacher' and label_loss=0.")
        if options.teacher_model_name_or_path is not None:
            what = "is for classes of transformers: a folder names no other."
            hint = "Leave it out: a model of your own is its own teacher."
            raise wrong_option("teacher_model_name_or_path", what, hint=hint)
