"""The model and the rows that a command line names, and the flags that most commands share."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..data import find_split, locate, read, read_dataset
from ..data.rows import Rows
from ..errors import UserError, existing, wrong_option
from ..options.data import DataOptions
from ..options.flags import add_options, take, truth
from ..tasks import Columns

__all__ = [
    "add_model", "add_options", "add_overwrite", "columns", "model", "needed_model", "needed_rows", "reader",
    "refuse_set", "rows", "sample", "take", "truth",
]  # fmt: skip

FILES = {"train": "train_file", "dev": "eval_file", "test": "test_file"}
FORM_OPTIONS = {"header", *(f"{field.name}_column" for field in dataclasses.fields(Columns))}
EVAL_OPTIONS = {"eval_file", "dataset", "data_dir", *FORM_OPTIONS}


def add_model(
    parser: argparse.ArgumentParser, help: str, *, several: bool = False, needed: bool = True, also: Sequence[str] = ()
) -> None:
    """Declare the model, or several: a word of its own, or `--model_name_or_path`; `also`: further flags of it."""
    shown = "MODEL [MODEL …]" if several else "MODEL" if needed else "[MODEL]"
    parser.add_argument("model", nargs="*" if several else "?", default=None, metavar=shown, help=help)
    flags = ("--model_name_or_path", *also)
    words = "+" if several else None
    parser.add_argument(*flags, dest="model_name_or_path", nargs=words, metavar="MODEL", help="the same as MODEL")


def model(arguments: argparse.Namespace) -> Any:
    """The model that was named, or the list of several, in either way; nothing where none was."""
    word, flag = arguments.model, arguments.model_name_or_path
    if word and flag and word != flag:
        both = [" ".join(one) if isinstance(one, list) else one for one in (word, flag)]
        what = f"Two models are named: '{both[0]}', and '{both[1]}' with --model_name_or_path."
        raise UserError(what, hint="Name it once.")
    return word or flag


def needed_model(arguments: argparse.Namespace) -> Any:
    """The model that the command cannot do without, or the list of several."""
    found = model(arguments)
    if not found:
        raise UserError("A model is needed.", hint=f"Write: tersely {arguments.typed[0]} MODEL …")
    return found


def add_overwrite(parser: argparse.ArgumentParser, help: str = "replace an earlier result") -> None:
    """Declare the flag that lets a command replace what it wrote before."""
    parser.add_argument("--overwrite", "--overwrite_output_dir", action="store_true", help=help)


def columns(options: DataOptions) -> Columns:
    """The columns that were named."""
    names = [field.name for field in dataclasses.fields(Columns)]
    return Columns(**{name: getattr(options, f"{name}_column") for name in names})


def rows(options: DataOptions, split: str) -> Rows | None:
    """Read the rows of a split: the file that was named, else the data set's; None where neither is given."""
    read_them = reader(options, split)
    return None if read_them is None else read_them()


def reader(options: DataOptions, split: str, *, may_lack: bool = False) -> Callable[[], Rows] | None:
    """What reads the rows of a split; a file or a data set that is not there is refused at once.

    `may_lack`: None also where the data set has no such split.
    """
    file = getattr(options, FILES[split])
    if options.dataset is None:
        refuse_set(options, {"data_dir"}, "--dataset")
    if file is not None:
        return partial(read, existing(file, "file"), header=options.header)
    if options.dataset is not None:
        refuse_set(options, {"header"}, f"--{FILES[split]}")
        if may_lack and find_split(locate(options.dataset, options.folder()), split) is None:
            return None
        return partial(read_dataset, options.dataset, split, options.folder())
    return None


def needed_rows(options: DataOptions, split: str) -> Rows:
    """Read the rows of a split that the command cannot do without."""
    found = rows(options, split)
    if found is None:
        raise wrong_option(FILES[split], "is needed.", hint="Or name a data set with --dataset.")
    return found


def refuse_set(options: Any, names: Collection[str], needed: str) -> None:
    """Refuse options that mean nothing without another one."""
    for name in sorted(names):
        if getattr(options, name) is not None:
            raise wrong_option(name, f"has no effect without {needed}.", hint="Leave it out.")


def sample(rows: Rows, count: int, seed: int | None) -> Rows:
    """Draw some rows by seed, in their order."""
    if count < 1:
        raise wrong_option("max_train_rows", f"must be at least 1. Got {count}.")
    chosen = np.random.default_rng(42 if seed is None else seed).permutation(len(rows))[:count]
    return rows.select(sorted(int(i) for i in chosen))
