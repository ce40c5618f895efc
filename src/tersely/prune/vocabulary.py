"""`prune_vocabulary`: a model folder whose tables hold the tokens and positions that the data uses, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..atomic import check_destination, whole_folder
from ..errors import UserError, wrong_option
from ..models.families import longest
from ..models.folder import ModelFolder
from ..progress import SILENT, Progress
from ..tasks import Encoder, Feature, Task
from . import tables
from .choose_tokens import SmallerTokenizer, changed, choose_tokens, count
from .cut_folder import write_folder


@dataclass(frozen=True)
class PrunedVocabulary:
    """What was cut: rows of the two tables, bytes of all weights; and what that changes on the eval rows, if any.

    `positions_*` are None where a model has no table of them. `unknown_*` is the share of unknown tokens among all that
    are not special; `same_rows` the share of rows that get the same tokens as before, and so the same logits.
    """

    folder: Path
    tokenizer: str
    tokens_before: int
    tokens_after: int
    positions_before: int | None
    positions_after: int | None
    bytes_before: int
    bytes_after: int
    unknown_before: float | None
    unknown_after: float | None
    same_rows: float | None

    def as_json(self) -> dict[str, Any]:
        """Give plain types."""
        return {**dataclasses.asdict(self), "folder": str(self.folder)}


def prune_vocabulary(
    folder: ModelFolder,
    examples: Sequence[Any],
    output_dir: str | Path,
    *,
    eval_examples: Sequence[Any] = (),
    max_vocab_size: int | None = None,
    max_seq_length: int | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> PrunedVocabulary:
    """Write a transformers folder with the tokens that the training rows use alone, and a tokenizer cut to match.

    Texts whose tokens are all kept get the same tokens and the same logits as before (each kind of tokenizer proves it
    in its file); a tokenizer of which that cannot be said is refused. Special and added tokens stay, and the letters
    that spell what is cut. `max_vocab_size`: only the most frequent tokens, so many rows in all. `max_seq_length`: how
    many positions stay, which is how many pieces the model is given from now on (None: as many as its task says).

    The rows are tokenized twice or more, the weights read and written once; no model is built.
    """
    check_destination(output_dir, overwrite=overwrite)
    where = str(folder.path)
    if not examples:
        raise UserError("There are no training rows to take the tokens from.", hint="Give some with --train_file.")
    config = tables.full_config(folder.config)
    task = _with_length(folder.task, max_seq_length, longest(config), where)
    tensors = tables.read_weights(folder.path)
    tables.check_tables(tensors, config, where)
    with progress.track("vocabulary", 2) as advance:
        try:
            stay = [*tables.tokens_in(config), *range(tables.positions_before_first(config))]
            smaller = choose_tokens(task, folder.encoder, examples, stay=stay, max_vocab_size=max_vocab_size)
            cut, new_config = _cut(tensors, config, smaller, task.max_seq_length)
        except UserError as error:
            raise UserError(error.what, where=error.where or where, hint=error.hint, option=error.option) from None
        advance(1, f"{len(smaller.numbers)} of {config['vocab_size']} tokens stay")
        with whole_folder(output_dir, overwrite=overwrite) as scratch:
            write_folder(scratch, folder.path, cut, new_config, smaller, task)
        advance(1)
    table = tables.has_positions(tensors)
    return PrunedVocabulary(
        folder=Path(output_dir),
        tokenizer=smaller.content["model"]["type"],
        tokens_before=config["vocab_size"],
        tokens_after=new_config["vocab_size"],
        positions_before=longest(config) if table else None,
        positions_after=longest(new_config) if table else None,
        bytes_before=sum(tensor.nbytes for tensor in tensors.values()),
        bytes_after=sum(tensor.nbytes for tensor in cut.values()),
        **_seen(task, folder.encoder, smaller, eval_examples),
    )


def _with_length(task: Task, length: int | None, limit: int | None, where: str) -> Task:
    length = task.max_seq_length if length is None else length
    if length < 1:
        raise wrong_option("max_seq_length", f"must be at least 1. Got {length}.")
    if limit is not None and length > limit:
        what = f"is {length}, but the model has {limit} positions."
        raise wrong_option("max_seq_length", what, where=where, hint="Lower it.")
    shorter: Task = dataclasses.replace(task, max_seq_length=length)  # type: ignore[type-var]
    return shorter


def _cut(
    tensors: tables.Tensors, config: dict[str, Any], smaller: SmallerTokenizer, length: int
) -> tuple[tables.Tensors, dict[str, Any]]:
    cut = tables.cut_tokens(tensors, config, list(smaller.numbers))
    renumbered = {**tables.renumber(config, smaller.numbers), "vocab_size": len(smaller.numbers)}
    return tables.cut_positions(cut, renumbered, length) if tables.has_positions(cut) else (cut, renumbered)


def _seen(task: Task, encoder: Encoder, smaller: SmallerTokenizer, examples: Sequence[Any]) -> dict[str, float | None]:
    """What rows that were not counted show of the cut."""
    if not examples:
        return {"unknown_before": None, "unknown_after": None, "same_rows": None}
    before, after = task.features(examples, encoder), task.features(examples, smaller.encoder)
    unknown = smaller.unknown
    return {
        "unknown_before": _share(before, encoder, unknown),
        "unknown_after": _share(after, smaller.encoder, None if unknown is None else smaller.numbers[unknown]),
        "same_rows": 1 - len(changed(before, after, smaller.numbers)) / len(examples),
    }


def _share(features: Sequence[Feature], encoder: Encoder, unknown: int | None) -> float:
    counts = count(features)
    framing = {int(number) for frame in (encoder.single, encoder.pair) for part in frame.ids for number in part}
    spelled = sum(times for number, times in counts.items() if number not in framing)
    return counts[unknown] / spelled if unknown is not None and spelled else 0.0
