"""From a trainer to a compress run: its model, datasets, collator, criterion and metrics, checked and passed on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..artifact import Provenance
from ..compression import story
from ..compression.divide import Data
from ..compression.request import Request
from ..compression.result import CompressionResult
from ..errors import UserError, wrong_option
from ..models.families.family import longest
from ..models.folder import ModelFolder, read_provenance, read_task
from ..options.effects import check_unlabelled
from ..processes import together
from ..progress import Progress
from ..strategy import STEPS, lacks_train_rows
from ..tasks import Own, Task, facts_of
from ..tasks.metrics import Metric
from ..tasks.options import TaskOptions
from ..tasks.sequence_classification import MULTI
from .arguments import CompressionArguments, request_of
from .datasets import ALIASES, BatchForm, QuestionDataset, TrainerDataset, TrainerRow, UnlabelledDataset, has_texts
from .model_copy import ModelCopy, copy_model, encoder_of, head_of, pad_id_of, tuple_names, vocabulary, write_folder
from .trainer_task import TrainerTask
from .user_loss import UserLoss
from .user_metrics import ComputedMetrics, EngineModule, metric_of_evaluate

SAMPLE = 32
"""Rows that are looked at first: what they hold tells what the model is fed, and what `compute_metrics` gives."""
PADDLE_ORDER = ("input_ids", "token_type_ids", "position_ids", "attention_mask")
"""The order in which PaddleNLP's models take their inputs."""


@dataclass(frozen=True)
class TrainerParts:
    """What a trainer is made of, as far as compression looks at it: model, datasets and the functions of the user's.

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
    unlabelled: Any = None
    label_names: Sequence[str] | None = None
    tensor_names: Iterable[str] | None = None
    eval_examples: Any = None

    @property
    def own_score(self) -> bool:
        """Whether the user's own function scores."""
        return self.evaluate is not None or self.compute_metrics is not None


def compress_model(
    parts: TrainerParts, arguments: CompressionArguments, *, overwrite: bool, progress: Progress
) -> CompressionResult:
    """Check, describe the model, and tell the story; what it makes is in the arguments' `output_dir`."""
    run = request_of(arguments)
    _check_plans(parts, run)
    labels = _labels(parts)
    names = _names(parts, labels)
    data = _datasets(parts)
    first = next((data[name] for name in ("eval_dataset", "train_dataset", "unlabelled_dataset") if name in data), None)
    batch = next(iter(first.batches(range(min(SAMPLE, len(first.dataset))), names))) if first else None
    copy = copy_model(parts.model, batch, labels)
    pad_id = pad_id_of(parts.model, parts.tokenizer)
    per_token = copy.per_token if copy.task is None else facts_of(copy.task).answers_for == "tokens"
    form = BatchForm(copy.inputs, labels, pad_id, names, "attention_mask" in copy.inputs, per_token)
    with tempfile.TemporaryDirectory(prefix="tersely-") as scratch:
        place = Path(scratch) / _name(parts.model)
        config = write_folder(copy, parts.tokenizer, place, _problem(copy, batch))
        rows = first.examples(range(len(first)), form) if first and parts.evaluation is not None else []
        seen = max((len(row.inputs["input_ids"]) for row in rows), default=0)
        shipped = _shipped((place, config), copy, parts, run.task_options, seen)
        if first and "unlabelled_dataset" in data:
            _check_inputs(first, data["unlabelled_dataset"], form)
        task = _with_own_metric(TrainerTask(shipped, form, data, _sample(first, form, copy)), copy, parts)
        encoder = encoder_of(parts.tokenizer, config, pad_id)
        folder = ModelFolder(place, config, task, encoder, copy.template, _provenance(parts.model, place, config))
        scored = copy.task is not None or task.own_metric is not None
        if copy.task is None:
            _check_own(scored, parts, run)
        by_name = {name: dataset.rows() for name, dataset in data.items()}
        evaluation = by_name.get("eval_dataset") if scored else None
        train = by_name.get("train_dataset") or (None if scored else by_name.get("eval_dataset"))
        criterion = parts.criterion
        if criterion is not None and not hasattr(criterion, "of_batch"):
            criterion = UserLoss(criterion, labels, zero_padding=copy.task is None)

        run = replace(
            run,
            model=folder,
            data=Data(train, evaluation, unlabelled=by_name.get("unlabelled_dataset")),
            task_options=TaskOptions(),  # they are in the folder's task already
            overwrite=overwrite or run.overwrite,
            criterion=criterion,
        )

        # Functions, datasets and the model are each process's own.
        return together(lambda: story.compress(run, progress), (folder, task, encoder, copy.template, criterion))


def _check_plans(parts: TrainerParts, run: Request) -> None:
    """Refuse what a trainer's model or its rows cannot have, before anything is read."""
    if run.options.input_infer_model_path is not None:
        what = "is for a bare graph, not for the trainer's model."
        hint = "Use tersely.compress(input_infer_model_path=…), or leave it out."
        raise wrong_option("input_infer_model_path", what, hint=hint)
    if parts.evaluate is not None and run.task_options.metric is not None and parts.compute_metrics is None:
        raise wrong_option("metric", "has no effect beside 'custom_evaluate'.", hint="Leave it out.")
    plans, options = run.options.plans(), run.options
    if parts.unlabelled is not None:
        check_unlabelled(options, plans, train=parts.train is not None, name="unlabelled_dataset")
    for plan in plans:
        for step in plan.steps:
            if STEPS[step].reads_text:
                what = f"The step '{step}' needs texts: the trainer's datasets are tokenized already."
                raise UserError(what, hint="Save the model and use tersely.compress, or leave the step out.")
        by_labels = [plan] if options.learns_from_labels(plan) else []
        unlabelled = parts.unlabelled is not None
        if lacks_train_rows(plan, train=parts.train is not None, unlabelled=unlabelled, by_labels=by_labels):
            if options.is_auto:  # its ladder goes without this rung
                continue
            rest = "+".join(plan.without_train_rows)
            hint = f" or write strategy='{rest}'" if rest else ""
            if unlabelled:
                hint = ", or learn from the teacher alone: importance='teacher', label_loss=0"
            raise UserError(f"The strategy '{plan.name}' needs a train_dataset.", hint=f"Give the Trainer one{hint}.")
        if parts.evaluation is None and plan.needs != "nothing":
            hint = "Give the Trainer one; only dynamic and embeddings do without."
            raise UserError(f"The strategy '{plan.name}' needs an eval_dataset.", hint=hint)


def _check_own(scored: bool, parts: TrainerParts, run: Request) -> None:
    """Refuse to train a model of the user's own without a score, or without a loss where labels count."""
    options = run.options
    for plan in options.plans():
        if plan.needs != "train and eval rows":
            continue
        if not scored:
            what = f"The strategy '{plan.name}' chooses by a score, and that of a model of your own is not known."
            raise UserError(what, hint="Give compress(custom_evaluate=…), or the Trainer compute_metrics.")
        if parts.criterion is None and options.learns_from_labels(plan):
            what = f"The strategy '{plan.name}' needs a loss, and that of a model of your own is not known."
            raise UserError(what, hint="Give the Trainer a criterion, or set importance='teacher' and label_loss=0.")
        if options.teacher_model_name_or_path is not None:
            what = "is for classes of transformers: a folder names no other."
            hint = "Leave it out: a model of your own is its own teacher."
            raise wrong_option("teacher_model_name_or_path", what, hint=hint)


def _provenance(model: Any, place: Path, config: Mapping[str, Any]) -> Provenance:
    """Of the folder or the Hub's model that the trainer's was loaded from."""
    name = str(getattr(model, "name_or_path", None) or "")
    return read_provenance(name if name and Path(name).is_dir() else place, {**config, "_name_or_path": name})


def _datasets(parts: TrainerParts) -> dict[str, TrainerDataset]:
    """The datasets by name; an eval_dataset of questions whose texts are at hand by question."""
    both = {"train_dataset": parts.train, "eval_dataset": parts.evaluation}
    found = {name: TrainerDataset(name, data, parts.load) for name, data in both.items() if data is not None}
    if parts.unlabelled is not None:
        found["unlabelled_dataset"] = UnlabelledDataset("unlabelled_dataset", parts.unlabelled, parts.load)
    task = head_of(parts.model)
    of_questions = task is not None and facts_of(task).answers_for == "span" and not parts.own_score
    if of_questions and has_texts(parts.evaluation, parts.eval_examples):
        found["eval_dataset"] = QuestionDataset("eval_dataset", parts.evaluation, parts.load, parts.eval_examples)
    return found


def _check_inputs(first: TrainerDataset, unlabelled: TrainerDataset, form: BatchForm) -> None:
    """Refuse unlabelled rows that do not give the model what the others give it: they share batches."""
    rows = (first.examples([0], form)[0], unlabelled.examples([0], form)[0])
    ours, theirs = ({*row.inputs} - {"attention_mask"} for row in rows)
    if ours != theirs:
        what = f"Its rows have {', '.join(sorted(theirs))}; those of the {first.name} {', '.join(sorted(ours))}."
        raise UserError(what, where=unlabelled.name, hint="Tokenize both alike.")


def _labels(parts: TrainerParts) -> tuple[str, ...]:
    if parts.label_names:
        return tuple("labels" if name in ALIASES["labels"] else name for name in parts.label_names)
    task = head_of(parts.model)
    return ("labels",) if task is None else facts_of(task).targets


def _names(parts: TrainerParts, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Names for rows that are tuples: those set, else as the forward has them."""
    if parts.tensor_names:
        return tuple(parts.tensor_names)
    data = parts.evaluation if parts.evaluation is not None else parts.train
    row = data[0] if data is not None and hasattr(data, "__getitem__") and len(data) else None
    return tuple_names(parts.model, len(row) if isinstance(row, (tuple, list)) else len(labels) + 1, labels)


def _problem(copy: ModelCopy, batch: Any) -> str | None:
    """Several labels a row show by their numbers: floats, as many as the model has outputs."""
    labels = None if batch is None else batch.get("labels")
    if copy.task is None or facts_of(copy.task).answers_for != "row" or labels is None or labels.dtype.kind != "f":
        return None
    return MULTI if labels.ndim == 2 and labels.shape[1] > 1 else None


def _shipped(folder: tuple[Path, Any], copy: ModelCopy, parts: TrainerParts, options: TaskOptions, seen: int) -> Task:
    """The task that an artifact is for. Rows that are longer (`seen`) than its usual length raise that."""
    place, config = folder
    if copy.task is None:
        for name in replace(options, max_seq_length=None, metric=None).chosen():
            raise wrong_option(name, "has no effect on a model of your own.", hint="Leave it out.")
        labels_last = len(copy.values) == 1 and copy.values[0].shape[-1] > 1
        chances = all(bool(((value >= 0) & (value <= 1)).all()) for value in copy.values)
        most = options.max_seq_length or max(128, seen)
        return Own(
            model_class=type(parts.model).__name__,
            inputs=copy.inputs,
            outputs=copy.outputs,
            labels_last=labels_last,
            threshold=0.5 if chances else 0.0,
            max_seq_length=min(most, longest(config) or most),
            metric="none",
            greater_is_better=parts.greater_is_better,
        )
    if parts.own_score:
        options = replace(options, metric=None)
    task = read_task(place, config, options)
    if options.max_seq_length is None and seen > task.max_seq_length:
        task = read_task(place, config, replace(options, max_seq_length=seen))
    return task


def _with_own_metric(task: TrainerTask, copy: ModelCopy, parts: TrainerParts) -> TrainerTask:
    """The same with the user's own score, if there is one."""
    pad_id = task.form.pad_id
    if parts.evaluate is not None:
        order = PADDLE_ORDER if parts.paddle_order and copy.task is not None else copy.order
        config = getattr(copy.template, "config", None)
        module = partial(EngineModule, order=order, pad_id=pad_id, config=config)
        metric = metric_of_evaluate(parts.evaluate, parts.loader, module, parts.greater_is_better)
    elif parts.compute_metrics is not None:
        several = len(copy.outputs) > 1
        computed = ComputedMetrics(
            parts.primary or "none", parts.compute_metrics, task.form.labels, several, parts.preprocess
        )
        if parts.evaluation is not None:
            few = task.data["eval_dataset"].examples(range(min(SAMPLE, len(parts.evaluation))), task.form)
            computed = computed.choosing(few, copy.template, pad_id, parts.primary, task.shipped.metric)
        metric = Metric.without_statistics(computed.metric, computed, parts.greater_is_better)
    else:
        return task
    shipped: Any = task.shipped
    if copy.task is None:
        shipped = replace(shipped, metric=metric.name)
    return replace(task, shipped=shipped, own_metric=metric)


def _sample(first: TrainerDataset | None, form: BatchForm, copy: ModelCopy) -> tuple[TrainerRow, ...]:
    """Rows to export and probe with: real ones, or made-up ids where the strategy needs no rows."""
    if first is not None:
        chosen = np.unique(np.linspace(0, len(first) - 1, min(SAMPLE, len(first))).astype(int))
        return tuple(first.examples([int(i) for i in chosen], form))
    draw, most = np.random.default_rng(0), max(2, vocabulary(copy.template))
    lengths = [int(length) for length in draw.integers(4, 24, SAMPLE)]
    return tuple(TrainerRow(i, {"input_ids": draw.integers(1, most, length)}) for i, length in enumerate(lengths))


def _name(model: Any) -> str:
    """What the model is called: the folder that it came from, else its class."""
    came_from = Path(str(getattr(getattr(model, "config", None), "_name_or_path", "") or "")).name
    return came_from or type(model).__name__
