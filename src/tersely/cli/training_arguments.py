"""Options of transformers' TrainingArguments as flags of the commands that train."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..errors import UserError, nearest
from ..options.option import add_options, options_in
from ..options.training import TrainingOptions

USUAL = TrainingOptions.__dataclass_fields__
OF_FINETUNE = {
    "per_device_eval_batch_size": "rows a batch when scoring (16)",
    "save_steps": "score and save every so many steps (every epoch)",
    "logging_steps": "how often the loss is taken (10)",
}
"""Where fine-tuning has other defaults than `dynabert` and `qat`."""


def add_training_options(
    parser: argparse.ArgumentParser,
    title: str = "training",
    *,
    without: Collection[str] = (),
    helps: Mapping[str, str] = OF_FINETUNE,
) -> None:
    """Give the parser a flag for each of the usual options; `helps`: texts that differ from the declared ones."""
    add_options(parser, TrainingOptions, only=set(USUAL) - set(without), title=title, helps=helps)


def take_training_options(
    arguments: argparse.Namespace, others: Iterable[str], *, without: Collection[str] = ()
) -> dict[str, Any]:
    """The options that were set: the usual, and any other of transformers'; `others`: names of options not its own.

    What is no option of anybody's is refused, with the nearest that is.
    """
    chosen = options_in(arguments, TrainingOptions)
    usual = {name: value for name, value in chosen.items() if name not in without}
    return {**usual, **read_more(arguments.rest, others)}


def training_names() -> list[str]:
    """All options of training: transformers' own, and the two that it has no name for."""
    from transformers import TrainingArguments

    return [*dict.fromkeys((*USUAL, *TrainingArguments.__dataclass_fields__))]


def read_more(words: list[str], others: Iterable[str]) -> dict[str, Any]:
    """Read other options than the usual as transformers' own parser does."""
    if not words:
        return {}
    import contextlib
    import io

    from transformers import HfArgumentParser, TrainingArguments

    from ..training.isolated import isolated

    names = [word[2:].split("=")[0] for word in words if word.startswith("--")]
    known = TrainingArguments.__dataclass_fields__
    for name in names:
        if name not in known:
            hint = nearest(f"--{name}", [f"--{option}" for option in (*known, *USUAL, *others)])
            raise UserError(f"There is no option '--{name}'.", hint=hint, option=name)
    complaint = io.StringIO()
    try:
        with isolated(), contextlib.redirect_stderr(complaint):
            (parsed,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(["--output_dir", "-", *words])
    except (SystemExit, ValueError) as error:
        last = complaint.getvalue().strip().splitlines()[-1:] or [str(error)]
        raise UserError(f"A training option cannot be taken: {last[0]}") from None
    return {name: getattr(parsed, name) for name in names}
