"""Words: where they stand in a text, which tokens they have, and how long sentences are cut into windows."""

from __future__ import annotations

import itertools
import string
import unicodedata

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text are: runs between blanks; each punctuation mark and Chinese character is one.

    BERT's rule, for every tokenizer: what SentencePiece and byte-level BPE call a word may be a whole Chinese sentence.

    >>> [text[start:end] for text in ["In U.S., 北京。"] for start, end in word_spans(text)]
    ['In', 'U', '.', 'S', '.', ',', '北', '京', '。']
    """
    spans: list[tuple[int, int]] = []
    open_run = False
    for place, letter in enumerate(text):
        alone = _stands_alone(letter)
        if open_run and not alone and not letter.isspace():
            spans[-1] = (spans[-1][0], place + 1)
        elif not letter.isspace():
            spans.append((place, place + 1))
        open_run = not alone and not letter.isspace()
    return spans


def _stands_alone(letter: str) -> bool:
    """Tell punctuation (ASCII symbols count, as for BERT) and Chinese characters."""
    if letter.isascii():
        return letter in string.punctuation
    kind = unicodedata.category(letter)
    return kind.startswith("P") or (kind == "Lo" and unicodedata.name(letter, "").startswith("CJK"))


def first_tokens(encoding: Encoding) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each word's first token is [words with tokens], and which word that is."""
    owners = np.array([-1 if word is None else word for word in encoding.word_ids], np.int64)
    if not len(owners):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begins = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
    return begins, owners[begins]


def windows(sizes: NDArray[np.int64], room: int) -> list[tuple[int, int, int, int]]:
    """Cut words of these sizes into (first, last, answers from, answers to) with a quarter of overlap."""
    if int(sizes.sum()) <= room:
        return [(0, len(sizes), 0, len(sizes))]
    ends = np.cumsum(sizes)
    bounds = []
    first = 0
    while True:
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + room, side="right")))
        bounds.append((first, last))
        if last >= len(sizes):
            break
        back = int(np.searchsorted(ends, int(ends[last - 1]) - room // 4, side="right"))
        first = max(first + 1, min(back, last))
    cuts = [0, *((nxt[0] + cur[1]) // 2 for cur, nxt in itertools.pairwise(bounds)), len(sizes)]
    return [(first, last, cuts[i], cuts[i + 1]) for i, (first, last) in enumerate(bounds)]
