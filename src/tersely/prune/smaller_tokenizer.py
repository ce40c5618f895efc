"""A tokenizer with fewer tokens: which can go, and a `tokenizer.json` without them, every number in it made anew."""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

from tokenizers.pre_tokenizers import BertPreTokenizer

from ..errors import UserError
from ..tasks import Encoder

HINT = "Leave out prune_embeddings."
BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_BERT_SPLIT = BertPreTokenizer()


@dataclass(frozen=True)
class SmallerTokenizer:
    """The tokens that stay, old number to new in rising order; `tokenizer.json` with these alone; its encoder."""

    numbers: Mapping[int, int]
    content: dict[str, Any]
    encoder: Encoder
    unknown: int | None
    """The unknown token's old number."""


def vocabulary_of(content: Mapping[str, Any]) -> Vocabulary:
    """Read the vocabulary of a `tokenizer.json`; a kind that cannot be cut exactly is refused by name.

    >>> vocabulary_of({"model": {"type": "WordLevel", "vocab": {"a": 0}}})
    Traceback (most recent call last):
    tersely.errors.UserError: A WordLevel tokenizer cannot be cut; WordPiece, Unigram, BPE can. Leave out \
prune_embeddings.
    """
    kind = content["model"].get("type")
    if kind not in KINDS:
        what = f"A {kind} tokenizer cannot be cut; {', '.join(KINDS)} can."
        raise UserError(what, hint=HINT)
    return KINDS[kind](content)


def named_tokens(content: Mapping[str, Any]) -> frozenset[int]:
    """Numbers that the file names outside its vocabulary: added and special tokens, those around a text, padding."""
    numbers = {token["id"] for token in content.get("added_tokens") or ()}
    for holder, key in _places(copy.deepcopy(dict(content))):
        numbers |= set(holder[key]) if isinstance(holder[key], list) else {holder[key]}
    return frozenset(numbers)


def rewrite(content: Mapping[str, Any], vocabulary: Vocabulary, numbers: Mapping[int, int]) -> dict[str, Any]:
    """Give a `tokenizer.json` with the tokens of `numbers`, old number to new, and all of its numbers changed.

    >>> content = {"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "b": 2}, "unk_token": "[UNK]",
    ...                      "continuing_subword_prefix": "##"}, "added_tokens": [{"id": 0, "content": "[UNK]"}]}
    >>> rewrite(content, vocabulary_of(content), {0: 0, 2: 1})["model"]["vocab"]
    {'[UNK]': 0, 'b': 1}
    """
    new = copy.deepcopy({key: part for key, part in content.items() if key != "model"})
    for token in new.get("added_tokens") or ():
        token["id"] = numbers[token["id"]]
    for holder, key in _places(new):
        old = holder[key]
        holder[key] = [numbers[number] for number in old] if isinstance(old, list) else numbers[old]
    return {key: vocabulary.cut(numbers) if key == "model" else new[key] for key in content}


class Vocabulary(ABC):
    """The tokens of one kind of tokenizer. Each kind proves in its docstring what stays as it was."""

    unknown: int | None
    """Number of the token for what cannot be spelled."""
    always: frozenset[int]
    """Tokens without which a cut is not exact."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._model = content["model"]
        vocabulary = self._model["vocab"]
        if not isinstance(vocabulary, Mapping):  # a list, in which a token's number is its place
            vocabulary = {token: number for number, (token, _) in enumerate(vocabulary)}
        self._numbers: Mapping[str, int] = vocabulary
        self._tokens = {number: token for token, number in vocabulary.items()}

    @abstractmethod
    def companions(self, number: int) -> frozenset[int]:
        """The tokens that must stay if this one does."""

    def check(self, kept: frozenset[int]) -> None:  # noqa: B027 - most kinds have nothing to refuse
        """Refuse a cut to these tokens that would not be exact."""

    def cut(self, numbers: Mapping[int, int]) -> dict[str, Any]:
        """Give the `model` part of `tokenizer.json` with the tokens of `numbers`, old number to new, alone."""
        kept = {token: numbers[number] for token, number in self._numbers.items() if number in numbers}
        return {**self._model, "vocab": dict(sorted(kept.items(), key=lambda item: item[1]))}


@final
class WordPiece(Vocabulary):
    """The tokens V of a WordPiece tokenizer, to be cut to K ⊆ V.

    **A word whose tokens are all in K keeps them.** At each place of the word the longest candidate in V is taken. If
    it is in K, it is the longest in K too: no longer one is in V. So both walk through the word in the same steps.

    **A word that was [UNK] stays [UNK]**, if no token of K holds, behind its first letter, a letter c without a `##c`
    in V. The old walk got stuck at some letter c: not the word's first (there K offers nothing that V does not), and
    `##c` is not in V. If the new walk came through, one of its tokens would cover c. That token cannot begin at c, or
    the old walk had taken it or a longer one; so it is in K and holds c behind its first letter. `check` looks for
    such tokens. (In V = {a, ab, ##bc} the word abc is [UNK]: ab is taken, then nothing fits. Without ab it is a ##bc.)
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self._prefix: str = self._model["continuing_subword_prefix"]
        before: Mapping[str, Any] = content.get("pre_tokenizer") or {}
        self._splits = any(p.get("type") == "BertPreTokenizer" for p in before.get("pretokenizers", [before]))
        self.unknown = self._numbers.get(self._model["unk_token"])
        self.always = frozenset({self.unknown} if self.unknown is not None else ())

    def companions(self, number: int) -> frozenset[int]:
        """The letters of a token, as beginnings of words and within: they spell the words that lose their token."""
        letters: set[str] = set()
        for text, within in self._uses(self._tokens.get(number, "")):
            letters |= {*text, *(self._prefix + letter for letter in (text if within else text[1:]))}
        return frozenset(self._numbers[letter] for letter in letters if letter in self._numbers)

    def check(self, kept: frozenset[int]) -> None:
        """Refuse tokens with which a word that was unknown could become known."""
        for number in sorted(kept):
            token = self._tokens.get(number, "")
            for letter in (letter for text, _ in self._uses(token) for letter in text[1:]):
                if self._prefix + letter not in self._numbers:
                    raise UserError(
                        f"The WordPiece vocabulary cannot be cut exactly: '{token}' is in use, but there is no token "
                        f"'{self._prefix}{letter}', so that a word that is unknown now might be spelled afterwards.",
                        hint=HINT,
                    )

    def _uses(self, token: str) -> Iterator[tuple[str, bool]]:
        """The stretches of a word that the token can stand for, and whether only behind the word's beginning."""
        inner = token.removeprefix(self._prefix)
        if self._in_a_word(token):
            yield token, False
        if token.startswith(self._prefix) and self._in_a_word(inner):
            yield inner, True

    def _in_a_word(self, text: str) -> bool:
        """Tell whether a word can hold the text: BERT's rule cuts at blanks and at every punctuation mark."""
        return text != "" and (not self._splits or [part for part, _ in _BERT_SPLIT.pre_tokenize_str(text)] == [text])


@final
class Unigram(Vocabulary):
    """The scored tokens V of a Unigram tokenizer (SentencePiece), to be cut to K ⊆ V.

    **A text whose tokens are all in K keeps them.** Tokens are the edges of a lattice over the text; a letter without
    a token of its own has an edge for the unknown token, which scores 10 less than the worst token of the vocabulary.
    That worst token always stays, so the unknown edges score what they did. The new lattice then has the old edges of
    K and the old unknown edges, and an unknown edge in place of each single letter that was cut, which scores less
    than that letter did. By induction from left to right no place of the text is reached with more than before
    (adding is monotone in floating point too), while every place on the old best path is reached by its old edge with
    as much as before. Where two edges are equal, the one from further left wins: one that beat the old edge now would
    have beaten it before, itself or as the letter that it stands for. So each place on the path keeps its edge.

    Unknown stretches are looked up and spelled in bytes as before: a stretch that was no token of V is none of K, and
    bytes are in K all together or, if they were not all in V, with the same ones missing.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.unknown = self._model.get("unk_id")
        scores = [score for _, score in self._model["vocab"]]
        if self.unknown is None or len(self._numbers) != len(scores):
            why = "names no unknown token" if self.unknown is None else "holds a token twice"
            raise UserError(f"The Unigram vocabulary cannot be cut exactly: it {why}.", hint=HINT)
        in_bytes = {number for token, number in self._numbers.items() if BYTE.fullmatch(token)}
        bytes_stay = in_bytes if self._model.get("byte_fallback") else ()
        self.always = frozenset({self.unknown, scores.index(min(scores)), *bytes_stay})

    def companions(self, number: int) -> frozenset[int]:
        """The letters of a token: they spell the words that lose their token."""
        return frozenset(self._numbers[letter] for letter in self._tokens.get(number, "") if letter in self._numbers)

    def cut(self, numbers: Mapping[int, int]) -> dict[str, Any]:
        """Give the model's part of `tokenizer.json` with these tokens alone; a token's number is its place."""
        kept = [entry for number, entry in enumerate(self._model["vocab"]) if number in numbers]
        return {**self._model, "vocab": kept, "unk_id": numbers[self.unknown or 0]}


@final
class Bpe(Vocabulary):
    """The tokens V of a BPE tokenizer, to be cut to K ⊆ V; K holds, with a token, whatever its merges pass through.

    **A text whose tokens are all in K keeps them.** A word begins as letters (or bytes); of all neighbours that some
    merge joins, those of the lowest rank are joined, the leftmost first, until no merge fits. No merge ever crosses
    the border of a final token p, so within p the merges are those of p as a word of its own: the same tokens in
    between, whatever stands around. These are in K (`companions`), and all merges among tokens of K stay, in their old
    order. So at every step the merge that the old tokenizer chose is still there, and still has the lowest rank; when
    none was left for the old one, none is left for the new one. The two take the same steps.

    All single letters stay (of a byte-level tokenizer: the 256 bytes), so that no text loses a letter.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        model = self._model
        for setting in ("dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(setting):
                what = (
                    f"A BPE vocabulary with '{setting}' ({model[setting]!r}) is not cut: it is not known to be exact."
                )
                raise UserError(what, hint=HINT)
        # Older files write a merge as one text with a blank.
        merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self._merges = [(left, right) for left, right in merges]
        self._ranks = {pair: rank for rank, pair in enumerate(self._merges)}
        self.unknown = self._numbers.get(model.get("unk_token"))
        letters = {number for token, number in self._numbers.items() if len(token) == 1}
        self.always = frozenset(letters if self.unknown is None else {*letters, self.unknown})

    def companions(self, number: int) -> frozenset[int]:
        """The tokens that the merges of this one pass through."""
        parts = list(self._tokens.get(number, ""))
        passed = set(parts)
        while len(parts) > 1:
            rank, place = min((self._ranks.get(pair, len(self._ranks)), at) for at, pair in enumerate(pairwise(parts)))
            if rank == len(self._ranks):
                return frozenset()  # no merges make it: an added token, or one that is found whole (`ignore_merges`)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
            passed.add(parts[place])
        return frozenset(self._numbers[token] for token in passed if token in self._numbers)

    def cut(self, numbers: Mapping[int, int]) -> dict[str, Any]:
        """Give the model's part of `tokenizer.json` with these tokens and the merges among them."""
        made = super().cut(numbers)
        kept = made["vocab"]
        return {**made, "merges": [[a, b] for a, b in self._merges if a in kept and b in kept and a + b in kept]}


KINDS: Mapping[str, type[Vocabulary]] = {"WordPiece": WordPiece, "Unigram": Unigram, "BPE": Bpe}


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
