"""Byte-pair encoding with fewer pieces: each keeps the merges that make it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, final

from ..errors import UserError


@final
class Bpe:
    """The pieces V of a BPE tokenizer, to be cut to K ⊆ V; K holds, with a piece, whatever its merges pass through.

    **A text whose pieces are all in K keeps them.** A word begins as letters (or bytes); of all neighbours that some
    merge joins, those of the lowest rank are joined, the leftmost first, until no merge fits. No merge ever crosses
    the border of a final piece p, so within p the merges are those of p as a word of its own: the same pieces in
    between, whatever stands around. These are in K (`companions`), and all merges among pieces of K stay, in their old
    order. So at every step the merge that the old tokenizer chose is still there, and still has the lowest rank; when
    none was left for the old one, none is left for the new one. The two take the same steps.

    All single letters stay (of a byte-level tokenizer: the 256 bytes), so that no text loses a letter.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        model = content["model"]
        for setting in ("dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(setting):
                raise UserError(
                    f"A BPE vocabulary with '{setting}' ({model[setting]!r}) is not cut: it is not known to be exact.",
                    hint="Leave out prune_embeddings.",
                )
        self._model = model
        self._numbers: Mapping[str, int] = model["vocab"]
        self._pieces = {number: piece for piece, number in self._numbers.items()}
        # Older files write a merge as one text with a blank.
        merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self._merges = [(left, right) for left, right in merges]
        self._ranks = {pair: rank for rank, pair in enumerate(self._merges)}
        unknown = model.get("unk_token")
        self.unknown: int | None = self._numbers.get(unknown) if unknown is not None else None
        letters = {number for piece, number in self._numbers.items() if len(piece) == 1}
        self.always = frozenset(letters if self.unknown is None else {*letters, self.unknown})

    def companions(self, number: int) -> frozenset[int]:
        """The pieces that the merges of this one pass through."""
        parts = list(self._pieces.get(number, ""))
        passed = set(parts)
        while len(parts) > 1:
            rank, place = min((self._ranks.get(pair, len(self._ranks)), at) for at, pair in enumerate(pairwise(parts)))
            if rank == len(self._ranks):
                return frozenset()  # no merges make it: an added token, or one that is found whole (`ignore_merges`)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
            passed.add(parts[place])
        return frozenset(self._numbers[piece] for piece in passed if piece in self._numbers)

    def check(self, kept: frozenset[int]) -> None:
        """Any cut that keeps companions is exact."""

    def cut(self, numbers: Mapping[int, int]) -> dict[str, Any]:
        """Give the model's part of `tokenizer.json` with these pieces and the merges among them."""
        kept = {piece: numbers[number] for piece, number in self._numbers.items() if number in numbers}
        merges = [[a, b] for a, b in self._merges if a in kept and b in kept and a + b in kept]
        return {**self._model, "vocab": dict(sorted(kept.items(), key=lambda item: item[1])), "merges": merges}
