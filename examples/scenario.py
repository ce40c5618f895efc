"""What the three scripts share: their arguments, the model's task, rows as features, and the last lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tersely import CompressionArguments, PdArgumentParser, UserError
from tersely.cli.compress_table import show
from tersely.compression.result import CompressionResult
from tersely.data import read_dataset
from tersely.errors import Failure
from tersely.models.folder import ModelFolder, open_folder
from tersely.tasks import Columns
from tersely.tasks.options import TaskOptions


@dataclass
class ModelArguments:
    """What is compressed."""

    model_name_or_path: str = field(metadata={"help": "fine-tuned transformers folder"})


@dataclass
class DataArguments:
    """What it is trained, calibrated and scored on. Lengths, strides and metrics are `CompressionArguments`' own."""

    dataset: str = field(metadata={"help": "a data set's name ('clue tnews', tnews, msra_ner) or its folder"})
    data_dir: str | None = field(
        default=None, metadata={"help": "where data sets' names are looked up ($TERSELY_DATA)"}
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "the first so many training rows only"})
    max_eval_samples: int | None = field(default=None, metadata={"help": "the first so many rows to score only"})


def parse() -> tuple[ModelArguments, DataArguments, CompressionArguments]:
    """Read the command line and the YAML file of `--config` beneath it."""
    parser = PdArgumentParser((ModelArguments, DataArguments, CompressionArguments))
    model_args, data_args, compression_args = parser.parse_args_into_dataclasses()
    return model_args, data_args, compression_args


def open_model(model_args: ModelArguments, compression_args: CompressionArguments, task: str) -> ModelFolder:
    """The model's task and tokenizer. What its folder says it was trained with becomes the default of the arguments."""
    names = list(TaskOptions.__dataclass_fields__)
    options = TaskOptions(**{name: getattr(compression_args, name) for name in names})
    folder = open_folder(model_args.model_name_or_path, options)
    if folder.task.name != task:
        raise UserError(f"The model's head is for {folder.task.name}, the script for {task}.", where=str(folder.path))
    for name in names:
        if getattr(folder.task, name, None) is not None:
            setattr(compression_args, name, getattr(folder.task, name))
    return folder


def read_examples(data_args: DataArguments, folder: ModelFolder) -> tuple[list[Any], list[Any]]:
    """Training rows and rows to score, checked against the model's labels."""
    found = []
    for split, most in (("train", data_args.max_train_samples), ("dev", data_args.max_eval_samples)):
        rows = read_dataset(data_args.dataset, split, data_args.data_dir)
        chosen = rows if most is None else rows.select(range(min(most, len(rows))))
        found.append(folder.task.read(chosen, Columns(), labelled=True))
    return found[0], found[1]


def encode(folder: ModelFolder, examples: Sequence[Any]) -> list[dict[str, Any]]:
    """Tokenized rows with labels, made by the code that the artifact runs with; what is long becomes several windows.

    Rows of any other tokenization do as well: a `datasets.Dataset` or a list of dicts with `input_ids` and `labels`.
    """
    rows = []
    for feature in folder.task.features(examples, folder.encoder):
        labels = folder.task.targets(examples[feature.example], feature)
        inputs = {"input_ids": feature.input_ids, "token_type_ids": feature.token_type_ids}
        rows.append({name: np.asarray(value).tolist() for name, value in {**inputs, **labels}.items()})
    return rows


def run(main: Callable[[], CompressionResult]) -> None:
    """Compress and print the table; a user's mistake is one line and exit code 2, a drop that is too large 1."""
    try:
        result = main()
        show(result, result.output_dir)
        result.expect_met()
    except UserError as error:
        error.on_command_line = True
        sys.stderr.write(f"{error}\n")
        sys.exit(1 if isinstance(error, Failure) else 2)
