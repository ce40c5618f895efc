"""The user's own score in the place of the task's: `custom_evaluate`, else `compute_metrics`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..engines.torch import TorchEngine
from ..errors import UserError
from ..runtime import batches
from ..tasks.metrics import Metric
from ..tasks.own import feature_of
from .handed import HandedModel
from .judges import Computed, Evaluated
from .live_model import LiveModel
from .live_task import LiveTask
from .parts import Parts

ROWS = 32
"""Rows on which `compute_metrics` is tried before any work."""
OF_PADDLE = ("input_ids", "token_type_ids", "position_ids", "attention_mask")
"""The order in which the reference's models take their inputs."""


def judged(task: LiveTask, live: LiveModel, parts: Parts, pad_id: int) -> LiveTask:
    """The same with the user's own score, if there is one."""
    if parts.evaluate is not None:
        order = OF_PADDLE if parts.paddle_order and live.task is not None else live.order

        def hand(engine: Any) -> HandedModel:
            return HandedModel(engine, order, pad_id, getattr(live.template, "config", None))

        whole: Any = Evaluated("custom_evaluate", parts.evaluate, hand, parts.loader)
        name = "custom_evaluate"
    elif parts.compute_metrics is not None:
        whole = _computed(task, live, parts, pad_id)
        name = whole.metric
    else:
        return task
    shipped: Any = task.shipped
    if task.facts.answers_for == "own":
        shipped = replace(shipped, metric=name)
    better = parts.greater_is_better
    return replace(task, shipped=shipped, own_metric=Metric.without_statistics(name, whole, better))


def _computed(task: LiveTask, live: LiveModel, parts: Parts, pad_id: int) -> Computed:
    """`compute_metrics`, asked of a few rows to see what it gives: the number named, the task's own, or the first."""
    whole = Computed("", parts.compute_metrics, task.form.labels, len(live.outputs) > 1, parts.preprocess)
    if parts.evaluation is None:
        return replace(whole, metric=parts.primary or "none")
    examples = task.data["eval_dataset"].examples(range(min(ROWS, len(parts.evaluation))), task.form)
    features = [feature_of(i, one.inputs) for i, one in enumerate(examples)]
    found = whole.numbers(examples, batches.run(TorchEngine(live.template), features, pad_id))
    own = task.shipped.metric if task.shipped.metric in found else next(iter(found))
    chosen = parts.primary or own
    if chosen not in found:
        what = f"'compute_metrics' gives no '{chosen}'. It gives: {', '.join(found)}."
        raise UserError(what, hint="Name the one that chooses with 'metric_for_best_model' of the arguments.")
    return replace(whole, metric=chosen)
