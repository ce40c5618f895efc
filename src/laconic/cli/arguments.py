"""Options of dataclasses as command-line flags, and back."""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Collection
from typing import Any, TypeVar

import numpy as np

from ..data import read, read_dataset
from ..data.rows import Rows
from ..errors import UserError
from ..options import DataOptions
from ..tasks import Columns

Options = TypeVar("Options")

FILES = {"train": "train_file", "dev": "eval_file", "test": "test_file"}
FORM_OPTIONS = {"header", *(f"{field.name}_column" for field in dataclasses.fields(Columns))}
EVAL_OPTIONS = {"eval_file", "dataset", "data_dir", *FORM_OPTIONS}


def add_options(parser: argparse.ArgumentParser, kind: type[Any], only: Collection[str] | None = None) -> None:
    """Give the parser a flag for each field of a dataclass of options."""
    group = parser.add_argument_group((kind.__doc__ or "").splitlines()[0].split(".")[0].lower())
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if only is not None and field.name not in only:
            continue
        type_ = _plain(hints[field.name])
        more: dict[str, Any]
        if type_ is bool:
            more = {"type": truth, "nargs": "?", "const": True, "metavar": "true|false"}
        else:
            more = {"type": type_, "metavar": type_.__name__.upper().replace("STR", "TEXT")}
        group.add_argument(f"--{field.name}", default=field.default, help=field.metadata.get("help"), **more)


def take(arguments: argparse.Namespace, kind: type[Options]) -> Options:
    """Make the dataclass from what was parsed."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(arguments, name) for name in names if hasattr(arguments, name)})


def truth(word: str) -> bool:
    """Read yes or no in its usual spellings.

    >>> truth("Yes"), truth("0")
    (True, False)
    """
    if word.lower() in ("yes", "true", "t", "y", "1"):
        return True
    if word.lower() in ("no", "false", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, got '{word}'")


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


def _plain(hint: Any) -> type:
    """`int | None` is int."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return typing.cast(type, hint)
