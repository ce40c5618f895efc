"""`tersely.compress`: the whole run as one call, with files or with rows in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from ..data import from_dataset, read
from ..data.rows import Rows
from ..errors import UserError, existing, nearest
from ..options.compress import CompressOptions
from ..processes import together
from ..progress import SILENT, Progress
from ..tasks import Columns
from ..tasks.options import TaskOptions
from . import story
from .divide import UnreadData
from .result import CompressionResult

COLUMNS = {f"{field.name}_column": field.name for field in dataclasses.fields(Columns)}


def compress(
    model: str | Path | None = None,
    *,
    output_dir: str | Path,
    train_file: Any = None,
    eval_file: Any = None,
    test_file: Any = None,
    strategy: str | Iterable[str] = "dynabert+ptq",
    overwrite: bool = False,
    progress: Progress = SILENT,
    **options: Any,
) -> CompressionResult:
    """Make a fine-tuned model small and fast, score every candidate on your rows, keep the best in output_dir/best.

    Files are paths, or rows in memory: a `datasets.Dataset`, a list of mappings. `options` are those of `tersely
    compress`, those of `transformers.TrainingArguments` among them where a strategy trains (`dynabert`, `qat`).
    `overwrite`, which may be called `overwrite_output_dir` too, replaces an earlier result in output_dir. Needs a few
    minutes for a small encoder, and the training besides. Where `max_drop` cannot be met everything is written all the
    same and `result.met` is False; `result.expect_met()` makes an error of that.

    >>> import tersely
    >>> tersely.compress("my-model", output_dir="out", eval_file="dev.tsv", algo_list="msse")
    Traceback (most recent call last):
    tersely.errors.UserError: The '--algo_list' option cannot be 'msse'. Did you mean 'mse'?
    """
    replaces = bool(options.pop("overwrite_output_dir", False))
    how, task, columns, training = _sort(options)
    asked = CompressOptions(strategy=strategy, **how)  # type: ignore[arg-type]
    task_options = TaskOptions(**task)

    def tell() -> CompressionResult:
        train, evaluation, test = (_reader(rows) for rows in (train_file, eval_file, test_file))
        return story.compress(
            model,
            output_dir,
            UnreadData(train, evaluation, test, Columns(**columns)),
            asked,
            training=training,
            task_options=task_options,
            given={"strategy", *how},
            overwrite=overwrite or replaces,
            progress=progress,
        )

    return together(tell)


def _sort(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Tell apart how to compress, what the task is, which columns hold what and how to train; refuse what is none."""
    how, task = _names(CompressOptions), _names(TaskOptions)
    rest = [name for name in options if name not in (*how, *task, *COLUMNS)]
    trains = _training_names() if rest else []
    for name in rest:
        if name not in trains:
            raise UserError(f"There is no option '{name}'.", hint=nearest(name, [*how, *task, *COLUMNS, *trains]))
    return (
        {name: str(value) if isinstance(value, Path) else value for name, value in options.items() if name in how},
        {name: value for name, value in options.items() if name in task},
        {COLUMNS[name]: value for name, value in options.items() if name in COLUMNS},
        {name: options[name] for name in rest},
    )


def _training_names() -> list[str]:
    """Options of transformers, which is imported only where one of them might be meant; and two of ours."""
    from transformers import TrainingArguments

    return [*TrainingArguments.__dataclass_fields__, "warmup_ratio", "device"]


def _names(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _reader(given: Any) -> Callable[[], Rows] | None:
    """What reads the rows of a file, or of objects in memory; a file that is not there is refused at once."""
    if given is None:
        return None
    if isinstance(given, Rows):
        return lambda: given
    return partial(read, existing(given, "file")) if isinstance(given, (str, Path)) else partial(from_dataset, given)
