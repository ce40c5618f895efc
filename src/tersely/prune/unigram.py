"""Unigram with fewer pieces: the best path through a lattice stays the best when others go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, final

from ..errors import UserError

BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@final
class Unigram:
    """The scored pieces V of a Unigram tokenizer (SentencePiece), to be cut to K ⊆ V.

    **A text whose pieces are all in K keeps them.** Pieces are the edges of a lattice over the text; a letter without
    a piece of its own has an edge for the unknown token, which scores 10 less than the worst piece of the vocabulary.
    That worst piece always stays, so the unknown edges score what they did. The new lattice then has the old edges of
    K and the old unknown edges, and an unknown edge in place of each single letter that was cut, which scores less
    than that letter did. By induction from left to right no place of the text is reached with more than before
    (adding is monotone in floating point too), while every place on the old best path is reached by its old edge with
    as much as before. Where two edges are equal, the one from further left wins: one that beat the old edge now would
    have beaten it before, itself or as the letter that it stands for. So each place on the path keeps its edge.

    Unknown stretches are looked up and spelled in bytes as before: a stretch that was no piece of V is none of K, and
    bytes are in K all together or, if they were not all in V, with the same ones missing.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        model = content["model"]
        self._model = model
        self._pieces = [piece for piece, _ in model["vocab"]]
        self._numbers = {piece: number for number, piece in enumerate(self._pieces)}
        self.unknown: int | None = model.get("unk_id")
        if self.unknown is None or len(self._numbers) != len(self._pieces):
            why = "names no unknown token" if self.unknown is None else "holds a piece twice"
            raise UserError(
                f"The Unigram vocabulary cannot be cut exactly: it {why}.", hint="Leave out prune_embeddings."
            )
        scores = [score for _, score in model["vocab"]]
        in_bytes = {n for piece, n in self._numbers.items() if BYTE.fullmatch(piece)} if _falls_back(model) else ()
        self.always = frozenset({self.unknown, scores.index(min(scores)), *in_bytes})

    def companions(self, number: int) -> frozenset[int]:
        """The letters of a piece: they spell the words that lose their piece."""
        piece = self._pieces[number] if number < len(self._pieces) else ""
        return frozenset(self._numbers[letter] for letter in piece if letter in self._numbers)

    def check(self, kept: frozenset[int]) -> None:
        """Any cut is exact."""

    def cut(self, numbers: Mapping[int, int]) -> dict[str, Any]:
        """Give the model's part of `tokenizer.json` with these pieces alone; a piece's number is its place."""
        kept = [entry for number, entry in enumerate(self._model["vocab"]) if number in numbers]
        return {**self._model, "vocab": kept, "unk_id": numbers[self.unknown or 0]}


def _falls_back(model: Mapping[str, Any]) -> bool:
    return bool(model.get("byte_fallback"))
