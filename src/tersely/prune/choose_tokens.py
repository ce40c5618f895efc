"""Which tokens stay: those that the training rows use, or the most frequent of them, and what must stay with these."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from ..errors import wrong_option
from ..tasks import Encoder, Feature, Task
from .tokenizer import Pieces, named_tokens, pieces_of, rewrite

WHOLE = 1 << 30
"""A length that cuts no text."""


@dataclass(frozen=True)
class SmallerTokenizer:
    """The tokens that stay, old number to new in rising order; `tokenizer.json` with these alone; its encoder."""

    numbers: Mapping[int, int]
    content: dict[str, Any]
    encoder: Encoder
    unknown: int | None
    """The unknown token's old number."""


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
    to the model; only if its last word would be spelled anew for lack of a piece beyond, it is counted whole.
    The rows are tokenized twice or more.
    """
    if max_vocab_size is not None and max_vocab_size < 1:
        raise wrong_option("max_vocab_size", f"must be at least 1. Got {max_vocab_size}.")
    content = json.loads(encoder.to_json())
    pieces = pieces_of(content)
    framing = {int(number) for frame in (encoder.single, encoder.pair) for part in frame.ids for number in part}
    always = _closed({*stay, *framing, encoder.pad_id, *named_tokens(content), *pieces.always}, pieces)
    fed = task.features(examples, encoder)
    counts = count(fed)
    whole: set[int] = set()
    while True:
        smaller = _cut(content, pieces, encoder, _most_frequent(counts, always, pieces, max_vocab_size))
        anew = changed(fed, task.features(examples, smaller.encoder), smaller.numbers) - whole
        if not anew or max_vocab_size is not None:
            return smaller
        whole |= anew
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


def _most_frequent(counts: Counter[int], always: frozenset[int], pieces: Pieces, most: int | None) -> list[int]:
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
        wanted = {number, *pieces.companions(number)} - kept
        if most is not None and len(kept) + len(wanted) > most:
            break
        kept |= wanted
    return sorted(kept)


def _closed(numbers: set[int], pieces: Pieces) -> frozenset[int]:
    return frozenset(numbers.union(*(pieces.companions(number) for number in numbers)))


def _cut(content: Mapping[str, Any], pieces: Pieces, encoder: Encoder, kept: Sequence[int]) -> SmallerTokenizer:
    pieces.check(frozenset(kept))
    numbers = {old: new for new, old in enumerate(kept)}
    smaller = rewrite(content, pieces, numbers)
    tokenizer = Tokenizer.from_str(json.dumps(smaller, ensure_ascii=False))
    return SmallerTokenizer(numbers, smaller, Encoder(tokenizer, numbers[encoder.pad_id]), pieces.unknown)


def _uncut(task: Task) -> Task:
    """The task, with room for whole rows."""
    lengths = {"max_seq_length", "max_query_length"} & {field.name for field in dataclasses.fields(task)}  # type: ignore[arg-type]
    longer: Task = dataclasses.replace(task, **dict.fromkeys(lengths, WHOLE))  # type: ignore[type-var]
    return longer
