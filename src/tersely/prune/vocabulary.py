"""`prune_vocabulary`: a model folder whose tables hold the tokens and positions that the data uses, and no others."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ..atomic import atomic_folder, check_destination
from ..errors import UserError, wrong_option
from ..models.folder import ModelFolder
from ..models.positions import longest
from ..progress import SILENT, Progress
from ..tasks import Encoder, Feature, Task
from . import cut_folder
from .smaller_tokenizer import SmallerTokenizer, Vocabulary, named_tokens, rewrite, vocabulary_of

UNCUT = 1 << 30
"""A length that cuts no text."""


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

    Texts whose tokens are all kept get the same tokens and the same logits as before (each kind of tokenizer proves
    it); a tokenizer of which that cannot be said is refused. Special and added tokens stay, and the letters that spell
    what is cut. `max_vocab_size`: only the most frequent tokens, so many rows in all. `max_seq_length`: how
    many positions stay, which is how many tokens the model is given from now on (None: as many as its task says).

    The rows are tokenized twice or more, the weights read and written once; no model is built.
    """
    check_destination(output_dir, overwrite=overwrite)
    where = str(folder.path)
    if not examples:
        raise UserError("There are no training rows to take the tokens from.", hint="Give some with --train_file.")
    config = cut_folder.full_config(folder.config)
    task = _with_length(folder.task, max_seq_length, longest(config), where)
    tensors = cut_folder.read_weights(folder.path)
    cut_folder.check_tables(tensors, config, where)
    with progress.track("vocabulary", 2) as advance:
        try:
            stay = [*cut_folder.tokens_in(config), *range(cut_folder.positions_before_first(config))]
            smaller = choose_tokens(task, folder.encoder, examples, stay=stay, max_vocab_size=max_vocab_size)
            cut, new_config = _cut(tensors, config, smaller, task.max_seq_length)
        except UserError as error:
            raise UserError(error.what, where=error.where or where, hint=error.hint, option=error.option) from None
        advance(1, f"{len(smaller.numbers)} of {config['vocab_size']} tokens stay")
        with atomic_folder(output_dir, overwrite=overwrite) as scratch:
            cut_folder.write_folder(scratch, folder.path, cut, new_config, smaller, task)
        advance(1)
    table = cut_folder.has_positions(tensors)
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


def choose_tokens(
    task: Task,
    encoder: Encoder,
    examples: Sequence[Any],
    *,
    stay: Iterable[int] = (),
    max_vocab_size: int | None = None,
) -> SmallerTokenizer:
    """Cut a tokenizer to the tokens that it makes of these rows, and others that are to `stay`.

    Without `max_vocab_size` every row here comes out as before. A row that is too long is counted as far as it is fed
    to the model; only if its last word would be spelled anew for lack of a token beyond, it is counted whole.
    The rows are tokenized twice or more.
    """
    if max_vocab_size is not None and max_vocab_size < 1:
        raise wrong_option("max_vocab_size", f"must be at least 1. Got {max_vocab_size}.")
    content = json.loads(encoder.to_json())
    vocabulary = vocabulary_of(content)
    framing = {int(number) for frame in (encoder.single, encoder.pair) for part in frame.ids for number in part}
    always = _closed({*stay, *framing, encoder.pad_id, *named_tokens(content), *vocabulary.always}, vocabulary)
    fed = task.features(examples, encoder)
    counts = count(fed)
    uncut: set[int] = set()
    while True:
        smaller = _tokenizer_of(
            content, vocabulary, encoder, _most_frequent(counts, always, vocabulary, max_vocab_size)
        )
        anew = changed(fed, task.features(examples, smaller.encoder), smaller.numbers) - uncut
        if not anew or max_vocab_size is not None:
            return smaller
        uncut |= anew
        counts += count(_uncut(task).features([examples[index] for index in sorted(anew)], encoder))


def count(features: Iterable[Feature]) -> Counter[int]:
    """How often each token is fed to the model."""
    counts: Counter[int] = Counter()
    for feature in features:
        counts.update(feature.input_ids.tolist())
    return counts


def changed(before: Sequence[Feature], after: Sequence[Feature], numbers: Mapping[int, int]) -> set[int]:
    """The examples that are given other tokens than before, however these are numbered."""
    old: dict[int, list[list[int | None]]] = defaultdict(list)
    new: dict[int, list[list[int | None]]] = defaultdict(list)
    for feature in before:
        old[feature.example].append([numbers.get(number) for number in feature.input_ids.tolist()])
    for feature in after:
        new[feature.example].append(feature.input_ids.tolist())
    return {example for example in old.keys() | new.keys() if old[example] != new[example]}


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
    tensors: cut_folder.Tensors, config: dict[str, Any], smaller: SmallerTokenizer, length: int
) -> tuple[cut_folder.Tensors, dict[str, Any]]:
    cut = cut_folder.cut_tokens(tensors, config, list(smaller.numbers))
    renumbered = {**cut_folder.renumber(config, smaller.numbers), "vocab_size": len(smaller.numbers)}
    return cut_folder.cut_positions(cut, renumbered, length) if cut_folder.has_positions(cut) else (cut, renumbered)


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


def _most_frequent(counts: Counter[int], always: frozenset[int], vocabulary: Vocabulary, most: int | None) -> list[int]:
    """Add tokens to those that always stay, the frequent first, each with its companions, until one does not fit."""
    if most is not None and most < len(always):
        raise wrong_option(
            "max_vocab_size",
            f"is {most}, but {len(always)} tokens always stay: special and added ones, "
            "and those without which the rest would not be spelled as before.",
            hint="Raise it.",
        )
    kept = set(always)
    for number in sorted(counts, key=lambda number: (-counts[number], number)):
        wanted = {number, *vocabulary.companions(number)} - kept
        if most is not None and len(kept) + len(wanted) > most:
            break
        kept |= wanted
    return sorted(kept)


def _closed(numbers: set[int], vocabulary: Vocabulary) -> frozenset[int]:
    return frozenset(numbers.union(*(vocabulary.companions(number) for number in numbers)))


def _tokenizer_of(
    content: Mapping[str, Any], vocabulary: Vocabulary, encoder: Encoder, kept: Sequence[int]
) -> SmallerTokenizer:
    vocabulary.check(frozenset(kept))
    numbers = {old: new for new, old in enumerate(kept)}
    smaller = rewrite(content, vocabulary, numbers)
    tokenizer = Tokenizer.from_str(json.dumps(smaller, ensure_ascii=False))
    return SmallerTokenizer(numbers, smaller, Encoder(tokenizer, numbers[encoder.pad_id]), vocabulary.unknown)


def _uncut(task: Task) -> Task:
    """The task, with room for whole rows."""
    lengths = {"max_seq_length", "max_query_length"} & {field.name for field in dataclasses.fields(task)}  # type: ignore[arg-type]
    longer: Task = dataclasses.replace(task, **dict.fromkeys(lengths, UNCUT))  # type: ignore[type-var]
    return longer
