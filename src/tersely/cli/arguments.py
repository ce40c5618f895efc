"""The rows that a command line names, and the flags that most commands share."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np

from ..data import read, read_dataset
from ..data.rows import Rows
from ..errors import UserError
from ..flags import add_options, take, truth
from ..options import DataOptions
from ..tasks import Columns

__all__ = ["add_options", "columns", "needed_rows", "refuse_set", "rows", "sample", "take", "truth"]

FILES = {"train": "train_file", "dev": "eval_file", "test": "test_file"}
FORM_OPTIONS = {"header", *(f"{field.name}_column" for field in dataclasses.fields(Columns))}
EVAL_OPTIONS = {"eval_file", "dataset", "data_dir", *FORM_OPTIONS}


def columns(options: DataOptions) -> Columns:
    """The columns that were named."""
    names = [field.name for field in dataclasses.fields(Columns)]
    return Columns(**{name: getattr(options, f"{name}_column") for name in names})


def rows(options: DataOptions, split: str) -> Rows | None:
    """Read the rows of a split: the file that was named, else the data set's; None where neither is given."""
    file = getattr(options, FILES[split])
    if options.dataset is None:
        refuse_set(options, {"data_dir"}, "--dataset")
    if file is not None:
        return read(file, header=options.header)
    if options.dataset is not None:
        refuse_set(options, {"header"}, f"--{FILES[split]}")
        return read_dataset(options.dataset, split, options.folder())
    return None


def needed_rows(options: DataOptions, split: str) -> Rows:
    """Read the rows of a split that the command cannot do without."""
    found = rows(options, split)
    if found is None:
        raise UserError(f"The '--{FILES[split]}' option is needed.", hint="Or name a data set with --dataset.")
    return found


def refuse_set(options: Any, names: Collection[str], needed: str) -> None:
    """Refuse options that mean nothing without another one."""
    for name in sorted(names):
        if getattr(options, name) is not None:
            raise UserError(f"The '--{name}' option has no effect without {needed}.", hint="Leave it out.")


def sample(rows: Rows, count: int, seed: int | None) -> Rows:
    """Draw some rows by seed, in their order."""
    if count < 1:
        raise UserError(f"The '--max_train_rows' option must be at least 1. Got {count}.")
    chosen = np.random.default_rng(42 if seed is None else seed).permutation(len(rows))[:count]
    return rows.select(sorted(int(i) for i in chosen))
