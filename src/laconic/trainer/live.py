"""From a trainer to a compress run: its model, datasets, collator, criterion and metrics, checked and handed on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..compression import story
from ..compression.divide import Data
from ..compression.result import CompressionResult
from ..compression.source import Origin
from ..engines.torch import TorchEngine
from ..errors import UserError
from ..folder import ModelFolder, longest, read_task
from ..options import TaskOptions
from ..progress import Progress
from ..runtime import batches
from ..strategy import Plan
from ..tasks import Columns, Own, Task
from ..tasks.own import feature_of
from ..tasks.sequence_classification import MULTI
from .arguments import CompressionArguments
from .asked import Asked, asked
from .criterion import LiveCriterion
from .handed import HandedModel
from .judges import Computed, Evaluated
from .live_model import LiveModel, describe, encoder_of, forward_names, head_of, pad_id_of, vocabulary, write_folder
from .live_questions import LiveQuestions, has_texts
from .live_rows import Form, LiveData, LiveExample
from .live_task import LiveTask

SAMPLE = 32
"""Rows that are looked at first: what they hold tells what the model is fed."""
OF_PADDLE = ("input_ids", "token_type_ids", "position_ids", "attention_mask")
"""The order in which the reference's models take their inputs."""
LONE = {"dynamic", "embeddings"}
LABELS = {"question_answering": ("start_positions", "end_positions")}


@dataclass(frozen=True)
class Parts:
    """What a trainer is made of, as far as compression looks at it.

    `load` gives collated batches of a part of a dataset; `loader` what an evaluator of the user's goes through.
    `evaluate` takes (model, dataloader). `primary` names the number of `compute_metrics` that chooses.
    """

    model: Any
    tokenizer: Any
    train: Any
    evaluation: Any
    load: Callable[[Any], Any]
    loader: Callable[[Sequence[int]], Any]
    criterion: Any = None
    evaluate: Callable[[Any, Any], Any] | None = None
    compute_metrics: Any = None
    preprocess: Any = None
    primary: str | None = None
    greater_is_better: bool = True
    paddle_order: bool = False
    label_names: tuple[str, ...] | None = None
    tensor_names: tuple[str, ...] | None = None
    eval_examples: Any = None


def compress_live(
    parts: Parts, arguments: CompressionArguments, *, overwrite: bool, progress: Progress
) -> CompressionResult:
    """Check, describe the model, and tell the story; what it makes is in the arguments' `output_dir`."""
    run = asked(arguments)
    _check(parts, run)
    labels = _labels(parts)
    names = _names(parts, labels)
    data = _data(parts)
    first = data.get("eval_dataset", data.get("train_dataset"))
    batch = next(iter(first.batches(range(min(SAMPLE, len(first.dataset))), names))) if first else None
    live = describe(parts.model, batch, labels)
    pad_id = pad_id_of(parts.model, parts.tokenizer)
    a_piece = live.a_piece if live.task is None else live.task == "token_classification"
    form = Form(live.inputs, labels, pad_id, names, "attention_mask" in live.inputs, a_piece)
    with tempfile.TemporaryDirectory(prefix="laconic-") as scratch:
        place = Path(scratch) / _name(parts.model)
        config = write_folder(live, parts.tokenizer, place, _problem(live, batch))
        shipped = _shipped(live, place, config, run, parts, first, form)
        task = _judged(LiveTask(shipped, form, data), live, parts, pad_id)
        task = replace(task, sample=_sample(first, form, live))
        encoder = encoder_of(parts.tokenizer, config, pad_id)
        folder = ModelFolder(place, config, task, encoder, live.template)
        scored = live.task is not None or task.whole is not None
        _check_own(live, scored, parts, run)
        rows = {name: one.rows() for name, one in data.items()}
        evaluation = rows.get("eval_dataset") if scored else None
        train = rows.get("train_dataset") or (None if scored else rows.get("eval_dataset"))
        return story.compress(
            Origin(place.name, folder),
            arguments.output_dir,
            Data(train, evaluation),
            run.options,
            training=run.training,
            given=run.given,
            overwrite=overwrite or run.overwrite,
            progress=progress,
            criterion=_criterion(parts, labels, live),
        )


def _check(parts: Parts, run: Asked) -> None:
    """Refuse what a live model or its rows cannot have, before anything is read."""
    if run.options.input_infer_model_path is not None:
        what = "The '--input_infer_model_path' option is for a bare graph, not for the trainer's model."
        raise UserError(what, hint="Use laconic.compress(input_infer_model_path=…), or leave it out.")
    for plan in run.options.plans():
        if "prune_embeddings" in plan.steps:
            what = "The step 'prune_embeddings' needs texts: the trainer's datasets are tokenized already."
            raise UserError(what, hint="Save the model and use laconic.compress, or leave the step out.")
        _check_rows(plan, parts)


def _check_rows(plan: Plan, parts: Parts) -> None:
    if parts.train is None and "train" in plan.needs:
        rest = "+".join(step for step in plan.steps if step in ("ptq", *LONE))
        hint = f" or write strategy='{rest}'" if rest else ""
        raise UserError(f"The strategy '{plan.name}' needs a train_dataset.", hint=f"Give the Trainer one{hint}.")
    if parts.evaluation is None and not set(plan.steps) <= LONE:
        hint = "Give the Trainer one; only dynamic and embeddings do without."
        raise UserError(f"The strategy '{plan.name}' needs an eval_dataset.", hint=hint)


def _check_own(live: LiveModel, scored: bool, parts: Parts, run: Asked) -> None:
    """Refuse to train a model of the user's own without a score, or without a loss where labels count."""
    options = run.options
    for plan in options.plans():
        if live.task is not None or plan.needs != "train and eval rows":
            continue
        if not scored:
            what = f"The strategy '{plan.name}' chooses by a score, and that of a model of your own is not known."
            raise UserError(what, hint="Give compress(custom_evaluate=…), or the Trainer compute_metrics.")
        if parts.criterion is None and (options.importance == "labels" or options.label_loss > 0):
            what = f"The strategy '{plan.name}' needs a loss, and that of a model of your own is not known."
            raise UserError(what, hint="Give the Trainer a criterion, or set importance='teacher' and label_loss=0.")
        if options.teacher_model_name_or_path is not None:
            what = "The '--teacher_model_name_or_path' option is for classes of transformers: a folder names no other."
            raise UserError(what, hint="Leave it out: a model of your own is its own teacher.")


def _data(parts: Parts) -> dict[str, LiveData]:
    """The datasets by name; an eval_dataset of questions whose texts are at hand by question."""
    own_score = parts.evaluate is not None or parts.compute_metrics is not None
    found: dict[str, LiveData] = {}
    if parts.train is not None:
        found["train_dataset"] = LiveData("train_dataset", parts.train, parts.load)
    if parts.evaluation is not None:
        of_questions = head_of(parts.model) == "question_answering" and not own_score
        if of_questions and has_texts(parts.evaluation, parts.eval_examples):
            found["eval_dataset"] = LiveQuestions("eval_dataset", parts.evaluation, parts.load, parts.eval_examples)
        else:
            found["eval_dataset"] = LiveData("eval_dataset", parts.evaluation, parts.load)
    return found


def _labels(parts: Parts) -> tuple[str, ...]:
    if parts.label_names:
        return parts.label_names
    return LABELS.get(head_of(parts.model) or "", ("labels",))


def _names(parts: Parts, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Names for rows that are tuples: those given, else the forward's parameters in order with the labels last."""
    if parts.tensor_names:
        return parts.tensor_names
    data = parts.evaluation if parts.evaluation is not None else parts.train
    row = data[0] if data is not None and hasattr(data, "__getitem__") and len(data) else None
    count = len(row) if isinstance(row, (tuple, list)) else len(labels) + 1
    order = [name for name in forward_names(parts.model) if name not in labels]
    return (*order[: max(0, count - len(labels))], *labels)


def _problem(live: LiveModel, batch: Any) -> str | None:
    """Several labels a row show by their numbers: floats, as many as the model has outputs."""
    labels = None if batch is None else batch.get("labels")
    if live.task != "sequence_classification" or labels is None or labels.dtype.kind != "f":
        return None
    return MULTI if labels.ndim == 2 and labels.shape[1] > 1 else None


def _shipped(
    live: LiveModel, place: Path, config: Any, run: Asked, parts: Parts, first: LiveData | None, form: Form
) -> Task:
    """The task that an artifact is for. Rows that are longer than its usual length raise that."""
    options = run.task_options
    own_score = parts.evaluate is not None or parts.compute_metrics is not None
    if own_score and options.metric is not None and parts.compute_metrics is None:
        raise UserError("The '--metric' option has no effect beside 'custom_evaluate'.", hint="Leave it out.")
    seen = max(len(one.inputs["input_ids"]) for one in first.all(form)) if first and parts.evaluation is not None else 0
    if live.task is None:
        for name in TaskOptions(**{**vars(options), "max_seq_length": None, "metric": None}).chosen():
            raise UserError(f"The '--{name}' option has no effect on a model of your own.", hint="Leave it out.")
        value = live.values[0]
        labels_last = len(live.values) == 1 and value.shape[-1] > 1
        chances = all(bool(((one >= 0) & (one <= 1)).all()) for one in live.values)
        most = options.max_seq_length or max(128, seen)
        return Own(
            type(parts.model).__name__, live.inputs, live.outputs, labels_last, 0.5 if chances else 0.0,
            min(most, longest(config) or most), _metric(parts), parts.greater_is_better,
        )  # fmt: skip
    if own_score:
        options = replace(options, metric=None)
    task = read_task(place, config, options)
    if options.max_seq_length is None and seen > task.max_seq_length:
        task = read_task(place, config, replace(options, max_seq_length=seen))
    return task


def _metric(parts: Parts) -> str:
    return "custom_evaluate" if parts.evaluate is not None else parts.primary or "none"


def _judged(task: LiveTask, live: LiveModel, parts: Parts, pad_id: int) -> LiveTask:
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
    return replace(task, whole=whole, whole_metric=name, greater_is_better=parts.greater_is_better)


def _computed(task: LiveTask, live: LiveModel, parts: Parts, pad_id: int) -> Computed:
    """`compute_metrics`, asked of a few rows to see what it gives: the number named, the task's own, or the first."""
    whole = Computed("", parts.compute_metrics, task.form.labels, len(live.outputs) > 1, parts.preprocess)
    if parts.evaluation is None:
        return replace(whole, metric=parts.primary or "none")
    rows = task.data["eval_dataset"].rows().select(range(min(SAMPLE, len(parts.evaluation))))
    examples = task.read(rows, Columns(), labelled=True)
    features = [feature_of(i, one.inputs) for i, one in enumerate(examples)]
    found = whole.numbers(examples, batches.run(TorchEngine(live.template), features, pad_id))
    own = task.shipped.metric if task.shipped.metric in found else next(iter(found))
    chosen = parts.primary or own
    if chosen not in found:
        what = f"'compute_metrics' gives no '{chosen}'. It gives: {', '.join(found)}."
        raise UserError(what, hint="Name the one that chooses with 'metric_for_best_model' of the arguments.")
    return replace(whole, metric=chosen)


def _sample(first: LiveData | None, form: Form, live: LiveModel) -> tuple[Any, ...]:
    """Rows to export and probe with: real ones, or made-up ids where the strategy needs no rows."""
    if first is not None:
        chosen = np.unique(np.linspace(0, len(first) - 1, min(SAMPLE, len(first))).astype(int))
        return tuple(first.examples([int(i) for i in chosen], form))
    draw, most = np.random.default_rng(0), max(2, vocabulary(live.template))
    lengths = [int(length) for length in draw.integers(4, 24, SAMPLE)]
    return tuple(LiveExample(i, {"input_ids": draw.integers(1, most, length)}) for i, length in enumerate(lengths))


def _criterion(parts: Parts, labels: tuple[str, ...], live: LiveModel) -> Any:
    if parts.criterion is None or hasattr(parts.criterion, "of_batch"):
        return parts.criterion
    return LiveCriterion(parts.criterion, labels, zero_padding=live.task is None)


def _name(model: Any) -> str:
    """What the model is called: the folder that it came from, else its class."""
    came_from = Path(str(getattr(getattr(model, "config", None), "_name_or_path", "") or "")).name
    return came_from or type(model).__name__
