"""A tokenizer with fewer tokens: which can go, and a `tokenizer.json` without them, every number in it made anew."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import UserError
from .bpe import Bpe
from .unigram import Unigram
from .wordpiece import WordPiece


class Pieces(Protocol):
    """The vocabulary of one kind of tokenizer. A maker proves in its docstring what stays as it was."""

    unknown: int | None
    """Number of the token for what cannot be spelled."""
    always: frozenset[int]
    """Tokens without which a cut is not exact."""

    def companions(self, number: int) -> frozenset[int]:
        """The tokens that must stay if this one does."""

    def check(self, kept: frozenset[int]) -> None:
        """Refuse a cut to these tokens that would not be exact."""

    def cut(self, numbers: Mapping[int, int]) -> dict[str, Any]:
        """Give the `model` part of `tokenizer.json` with the tokens of `numbers`, old number to new, alone."""


KINDS: Mapping[str, type[WordPiece] | type[Unigram] | type[Bpe]] = {
    "WordPiece": WordPiece,
    "Unigram": Unigram,
    "BPE": Bpe,
}


def pieces_of(content: Mapping[str, Any]) -> Pieces:
    """Read the vocabulary of a `tokenizer.json`; a kind that cannot be cut exactly is refused by name.

    >>> pieces_of({"model": {"type": "WordLevel", "vocab": {"a": 0}}})
    Traceback (most recent call last):
    tersely.errors.UserError: A WordLevel tokenizer cannot be cut; WordPiece, Unigram, BPE can. Leave out \
prune_embeddings.
    """
    kind = content["model"].get("type")
    if kind not in KINDS:
        what = f"A {kind} tokenizer cannot be cut; {', '.join(KINDS)} can."
        raise UserError(what, hint="Leave out prune_embeddings.")
    return KINDS[kind](content)


def named_tokens(content: Mapping[str, Any]) -> frozenset[int]:
    """Numbers that the file names outside its vocabulary: added and special tokens, those around a text, padding."""
    numbers = {token["id"] for token in content.get("added_tokens") or ()}
    for holder, key in _places(copy.deepcopy(dict(content))):
        numbers |= set(holder[key]) if isinstance(holder[key], list) else {holder[key]}
    return frozenset(numbers)


def rewrite(content: Mapping[str, Any], pieces: Pieces, numbers: Mapping[int, int]) -> dict[str, Any]:
    """Give a `tokenizer.json` with the tokens of `numbers`, old number to new, and all of its numbers changed.

    >>> vocabulary = {"[UNK]": 0, "a": 1, "b": 2}
    >>> content = {"model": {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]",
    ...                      "continuing_subword_prefix": "##"}, "added_tokens": [{"id": 0, "content": "[UNK]"}]}
    >>> rewrite(content, pieces_of(content), {0: 0, 2: 1})["model"]["vocab"]
    {'[UNK]': 0, 'b': 1}
    """
    new = copy.deepcopy({key: part for key, part in content.items() if key != "model"})
    for token in new.get("added_tokens") or ():
        token["id"] = numbers[token["id"]]
    for holder, key in _places(new):
        old = holder[key]
        holder[key] = [numbers[number] for number in old] if isinstance(old, list) else numbers[old]
    return {key: pieces.cut(numbers) if key == "model" else new[key] for key in content}


def _places(content: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Where else token numbers stand, as (holder, key): one number or a list of them."""
    places: list[tuple[Any, Any]] = []
    if content.get("padding"):
        places.append((content["padding"], "pad_id"))
    outer = content.get("post_processor") or {}
    for part in (outer, *outer.get("processors", ())):
        if part.get("type") == "TemplateProcessing":
            places += [(token, "ids") for token in part["special_tokens"].values()]
        if part.get("type") in ("BertProcessing", "RobertaProcessing"):
            places += [(part[role], 1) for role in ("sep", "cls")]
    return places
