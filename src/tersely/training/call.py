"""`tersely.finetune`: train an encoder on rows of one's own, best checkpoint kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..data import RowSource, rows_of
from ..deploy.systems import task_and_columns
from ..errors import wrong_option
from ..processes import together
from ..progress import Progress, shown
from .finetune import Finetuned, LabelledRows
from .finetune import finetune as train_and_write

USUAL = (
    "num_train_epochs", "max_steps", "per_device_train_batch_size", "per_device_eval_batch_size",
    "gradient_accumulation_steps", "learning_rate", "weight_decay", "warmup_steps", "warmup_ratio", "device", "optim",
    "lr_scheduler_type", "save_steps", "logging_steps", "seed", "bf16",
)  # fmt: skip
"""Options of training that have a parameter of their own."""


def finetune(
    model: str | Path,
    *,
    output_dir: str | Path,
    train_file: RowSource,
    eval_file: RowSource,
    max_train_rows: int | None = None,
    num_train_epochs: float | None = None,
    max_steps: int | None = None,
    per_device_train_batch_size: int | None = None,
    per_device_eval_batch_size: int | None = None,
    gradient_accumulation_steps: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    warmup_steps: float | None = None,
    warmup_ratio: float | None = None,
    device: str | None = None,
    optim: str | None = None,
    lr_scheduler_type: str | None = None,
    save_steps: int | None = None,
    logging_steps: int | None = None,
    seed: int | None = None,
    bf16: bool | None = None,
    training_args: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    # generated from the options: make docs
    task: str | None = None,
    metric: str | None = None,
    max_seq_length: int | None = None,
    doc_stride: int | None = None,
    n_best_size: int | None = None,
    max_answer_length: int | None = None,
    max_query_length: int | None = None,
    null_score_diff_threshold: float | None = None,
    no_answer: bool | None = None,
    answer_language: Literal["auto", "en", "zh"] | None = None,
    header: bool | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    words_column: str | None = None,
    tags_column: str | None = None,
    question_column: str | None = None,
    context_column: str | None = None,
    answers_column: str | None = None,
    # end of generated
    progress: Progress | bool | None = None,
) -> Finetuned:
    """Train an encoder on rows of your own, keep the best checkpoint, write an ordinary transformers folder.

    A run that was killed goes on from its last whole checkpoint when it is started again with the same input.

    Args:
        model: The transformers folder to start from.
        output_dir: Where the fine-tuned model goes.
        train_file: The rows to train on: a file, a `datasets.Dataset`, or a list of mappings.
        eval_file: The rows that choose the checkpoint and score it.
        max_train_rows: Train on so many rows, drawn by the seed (all).
        num_train_epochs: Passes over the training rows (3).
        max_steps: Stop after so many steps.
        per_device_train_batch_size: Rows a training step (8).
        per_device_eval_batch_size: Rows a batch when scoring (16).
        gradient_accumulation_steps: Batches a step (1).
        learning_rate: The peak learning rate (5e-5).
        weight_decay: Weight decay (0).
        warmup_steps: Steps of warm-up, or a share of all steps below 1 (0).
        warmup_ratio: Steps of warm-up as a share of all steps (0).
        device: "cpu" or "gpu" (the best there is).
        optim: "adamw", "sgd", "adafactor" and others ("adamw").
        lr_scheduler_type: "linear", "cosine", "constant" and others ("linear").
        save_steps: Score and save every so many steps (every epoch).
        logging_steps: How often the loss is taken (10).
        seed: Of the new head, the order of the rows and `max_train_rows` (42).
        bf16: Train in bf16, on CPUs that have it.
        training_args: Further options of `transformers.TrainingArguments`, by name.
        overwrite: Replace an earlier result in `output_dir`.
        task: sequence_classification, multi_label_classification, regression, token_classification, question_answering
            (read from the model where it can be).
        metric: The number that chooses; the task's own unless set.
        max_seq_length: Tokens a sequence may have (128; question answering 384).
        doc_stride: Tokens that two windows of one context share (128, at most half of the room).
        n_best_size: Starts and ends to look at for an answer (20).
        max_answer_length: Tokens an answer may have (30).
        max_query_length: Tokens a question may have (64).
        null_score_diff_threshold: How much better 'no answer' must be to be given (0).
        no_answer: Questions may have no answer, as in SQuAD 2.
        answer_language: auto, en (SQuAD's rule) or zh (CMRC 2018's rule).
        header: Whether csv and tsv files begin with column names (seen by itself unless set).
        text_column: Column of the text.
        text_pair_column: Column of the second text.
        label_column: Column of the label.
        words_column: Column of the words.
        tags_column: Column of the tags.
        question_column: Column of the question.
        context_column: Column of the context.
        answers_column: Column of the answers.
        progress: A `Progress` of your own; None shows a bar on a terminal, False nothing.

    Returns:
        A `Finetuned`: the `folder`, the `task`, the `score` on the eval rows and the number of `steps`.

    Raises:
        UserError: Where the model, the rows or an option cannot be taken, or `output_dir` is not empty.

    Example:
        >>> rows = [{"text": "good", "label": "yes"}]
        >>> finetune("encoder", output_dir="model", train_file=rows, eval_file=rows, max_train_rows=0)
        Traceback (most recent call last):
        tersely.errors.UserError: The 'max_train_rows' option must be at least 1. Got 0.
    """
    arguments = locals()
    options, columns = task_and_columns(arguments)
    usual = {name: arguments[name] for name in USUAL if arguments[name] is not None}
    training = {**usual, **(training_args or {})}
    if max_train_rows is not None and max_train_rows < 1:
        raise wrong_option("max_train_rows", f"must be at least 1. Got {max_train_rows}.")

    def train() -> Finetuned:
        rows, evaluation = rows_of(train_file, header), rows_of(eval_file, header)
        if max_train_rows is not None:  # drawn by the seed, in their order
            drawn = np.random.default_rng(training.get("seed", 42)).permutation(len(rows))[:max_train_rows]
            rows = rows.select(sorted(int(i) for i in drawn))
        data = LabelledRows(rows, evaluation, columns)
        bar = shown(progress)
        return train_and_write(model, data, output_dir, options, training, overwrite=overwrite, progress=bar)

    return together(train)
