"""WordPiece with fewer pieces: greedy longest match, which a smaller vocabulary leaves alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

from tokenizers.pre_tokenizers import BertPreTokenizer

from ..errors import UserError


@final
class WordPiece:
    """The pieces V of a WordPiece tokenizer, to be cut to K ⊆ V.

    **A word whose pieces are all in K keeps them.** At each place of the word the longest candidate in V is taken. If
    it is in K, it is the longest in K too: no longer one is in V. So both walk through the word in the same steps.

    **A word that was [UNK] stays [UNK]**, if no piece of K holds, behind its first letter, a letter c without a `##c`
    in V. The old walk got stuck at some letter c: not the word's first (there K offers nothing that V does not), and
    `##c` is not in V. If the new walk came through, one of its pieces would cover c. That piece cannot begin at c, or
    the old walk had taken it or a longer one; so it is in K and holds c behind its first letter. `check` looks for
    such pieces. (In V = {a, ab, ##bc} the word abc is [UNK]: ab is taken, then nothing fits. Without ab it is a ##bc.)
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        model = content["model"]
        self._model = model
        self._numbers: Mapping[str, int] = model["vocab"]
        self._pieces = {number: piece for piece, number in self._numbers.items()}
        self._prefix: str = model["continuing_subword_prefix"]
        self._splits = _has_bert_split(content.get("pre_tokenizer"))
        self.unknown: int | None = self._numbers.get(model["unk_token"])
        self.always = frozenset({self.unknown} if self.unknown is not None else ())

    def companions(self, number: int) -> frozenset[int]:
        """The letters of a piece, as beginnings of words and within: they spell the words that lose their piece."""
        letters: set[str] = set()
        for text, within in self._uses(self._pieces.get(number, "")):
            letters |= {*text, *(self._prefix + letter for letter in (text if within else text[1:]))}
        return frozenset(self._numbers[letter] for letter in letters if letter in self._numbers)

    def check(self, kept: frozenset[int]) -> None:
        """Refuse pieces with which a word that was unknown could become known."""
        for number in sorted(kept):
            piece = self._pieces.get(number, "")
            for letter in (letter for text, _ in self._uses(piece) for letter in text[1:]):
                if self._prefix + letter not in self._numbers:
                    raise UserError(
                        f"The WordPiece vocabulary cannot be cut exactly: '{piece}' is in use, but there is no piece "
                        f"'{self._prefix}{letter}', so that a word that is unknown now might be spelled afterwards.",
                        hint="Leave out prune_embeddings.",
                    )

    def cut(self, numbers: Mapping[int, int]) -> dict[str, Any]:
        """Give the model's part of `tokenizer.json` with these pieces alone, under their new numbers."""
        kept = {piece: numbers[number] for piece, number in self._numbers.items() if number in numbers}
        return {**self._model, "vocab": dict(sorted(kept.items(), key=lambda item: item[1]))}

    def _uses(self, piece: str) -> Iterator[tuple[str, bool]]:
        """The stretches of a word that the piece can stand for, and whether only behind the word's beginning."""
        inner = piece.removeprefix(self._prefix)
        if self._in_a_word(piece):
            yield piece, False
        if piece.startswith(self._prefix) and self._in_a_word(inner):
            yield inner, True

    def _in_a_word(self, text: str) -> bool:
        """Tell whether a word can hold the text: BERT's rule cuts at blanks and at every punctuation mark."""
        return text != "" and (not self._splits or [part for part, _ in _SPLIT.pre_tokenize_str(text)] == [text])


_SPLIT = BertPreTokenizer()


def _has_bert_split(part: Mapping[str, Any] | None) -> bool:
    parts = (part or {}).get("pretokenizers", [part or {}])
    return any(inner.get("type") == "BertPreTokenizer" for inner in parts)
