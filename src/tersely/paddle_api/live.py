"""From a trainer to a compress run: its model, datasets, collator, criterion and metrics, checked and handed on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..artifact import Provenance
from ..compression import story
from ..compression.divide import Data
from ..compression.request import Request
from ..compression.result import CompressionResult
from ..errors import wrong_option
from ..models.folder import ModelFolder, read_provenance, read_task
from ..models.positions import longest
from ..processes import together
from ..progress import Progress
from ..tasks import Own, Task, facts_of
from ..tasks.options import TaskOptions
from ..tasks.sequence_classification import MULTI
from .arguments import CompressionArguments, request_of
from .criterion import LiveCriterion
from .live_checks import check_own, check_parts
from .live_model import LiveModel, describe, encoder_of, forward_names, head_of, pad_id_of, vocabulary, write_folder
from .live_questions import LiveQuestions, has_texts
from .live_rows import ALIASES, Form, LiveData, LiveExample
from .live_score import judged
from .live_task import LiveTask
from .parts import Parts

SAMPLE = 32
"""Rows that are looked at first: what they hold tells what the model is fed."""


def compress_live(
    parts: Parts, arguments: CompressionArguments, *, overwrite: bool, progress: Progress
) -> CompressionResult:
    """Check, describe the model, and tell the story; what it makes is in the arguments' `output_dir`."""
    run = request_of(arguments)
    check_parts(parts, run)
    labels = _labels(parts)
    names = _names(parts, labels)
    data = _data(parts)
    first = data.get("eval_dataset", data.get("train_dataset"))
    batch = next(iter(first.batches(range(min(SAMPLE, len(first.dataset))), names))) if first else None
    live = describe(parts.model, batch, labels)
    pad_id = pad_id_of(parts.model, parts.tokenizer)
    a_piece = live.a_piece if live.task is None else facts_of(live.task).answers_for == "tokens"
    form = Form(live.inputs, labels, pad_id, names, "attention_mask" in live.inputs, a_piece)
    with tempfile.TemporaryDirectory(prefix="tersely-") as scratch:
        place = Path(scratch) / _name(parts.model)
        config = write_folder(live, parts.tokenizer, place, _problem(live, batch))
        shipped = _shipped(live, place, config, run, parts, first, form)
        task = judged(LiveTask(shipped, form, data), live, parts, pad_id)
        task = replace(task, sample=_sample(first, form, live))
        encoder = encoder_of(parts.tokenizer, config, pad_id)
        folder = ModelFolder(place, config, task, encoder, live.template, _provenance(parts.model, place, config))
        scored = live.task is not None or task.whole is not None
        check_own(live, scored, parts, run)
        rows = {name: one.rows() for name, one in data.items()}
        evaluation = rows.get("eval_dataset") if scored else None
        train = rows.get("train_dataset") or (None if scored else rows.get("eval_dataset"))
        criterion = _criterion(parts, labels, live)

        run = replace(
            run,
            model=folder,
            data=Data(train, evaluation),
            task_options=TaskOptions(),  # they are in the folder's task already
            overwrite=overwrite or run.overwrite,
            criterion=criterion,
        )

        # Functions, datasets and the model are each process's own.
        return together(lambda: story.compress(run, progress), (folder, task, encoder, live.template, criterion))


def _provenance(model: Any, place: Path, config: Mapping[str, Any]) -> Provenance:
    """Of the folder or the Hub's model that the live one was loaded from."""
    source = str(getattr(model, "name_or_path", None) or "")
    return read_provenance(source if source and Path(source).is_dir() else place, {**config, "_name_or_path": source})


def _data(parts: Parts) -> dict[str, LiveData]:
    """The datasets by name; an eval_dataset of questions whose texts are at hand by question."""
    own_score = parts.evaluate is not None or parts.compute_metrics is not None
    found: dict[str, LiveData] = {}
    if parts.train is not None:
        found["train_dataset"] = LiveData("train_dataset", parts.train, parts.load)
    if parts.evaluation is not None:
        task = head_of(parts.model)
        of_questions = task is not None and facts_of(task).answers_for == "span" and not own_score
        if of_questions and has_texts(parts.evaluation, parts.eval_examples):
            found["eval_dataset"] = LiveQuestions("eval_dataset", parts.evaluation, parts.load, parts.eval_examples)
        else:
            found["eval_dataset"] = LiveData("eval_dataset", parts.evaluation, parts.load)
    return found


def _labels(parts: Parts) -> tuple[str, ...]:
    if parts.label_names:
        return tuple("labels" if name in ALIASES["labels"] else name for name in parts.label_names)
    task = head_of(parts.model)
    return ("labels",) if task is None else facts_of(task).targets


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
    if live.task is None or facts_of(live.task).answers_for != "row" or labels is None or labels.dtype.kind != "f":
        return None
    return MULTI if labels.ndim == 2 and labels.shape[1] > 1 else None


def _shipped(
    live: LiveModel, place: Path, config: Any, run: Request, parts: Parts, first: LiveData | None, form: Form
) -> Task:
    """The task that an artifact is for. Rows that are longer than its usual length raise that."""
    options = run.task_options
    own_score = parts.evaluate is not None or parts.compute_metrics is not None
    if own_score and options.metric is not None and parts.compute_metrics is None:
        raise wrong_option("metric", "has no effect beside 'custom_evaluate'.", hint="Leave it out.")
    seen = max(len(one.inputs["input_ids"]) for one in first.all(form)) if first and parts.evaluation is not None else 0
    if live.task is None:
        for name in TaskOptions(**{**vars(options), "max_seq_length": None, "metric": None}).chosen():
            raise wrong_option(name, "has no effect on a model of your own.", hint="Leave it out.")
        value = live.values[0]
        labels_last = len(live.values) == 1 and value.shape[-1] > 1
        chances = all(bool(((one >= 0) & (one <= 1)).all()) for one in live.values)
        most = options.max_seq_length or max(128, seen)
        return Own(
            type(parts.model).__name__, live.inputs, live.outputs, labels_last, 0.5 if chances else 0.0,
            min(most, longest(config) or most), "none", parts.greater_is_better,
        )  # fmt: skip
    if own_score:
        options = replace(options, metric=None)
    task = read_task(place, config, options)
    if options.max_seq_length is None and seen > task.max_seq_length:
        task = read_task(place, config, replace(options, max_seq_length=seen))
    return task


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
