"""What a model is given and what it gives: `Encoder`, text to tokens; `Feature`, tokens; `Logits` and their `softmax`.

Through the `tokenizers` library and NumPy alone. The same code serves training and deployment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from ..errors import UserError, wrong_option

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Frame:
    """The special tokens around one or two sequences, and the type id of each part."""

    ids: tuple[Ids, ...]
    types: tuple[int, ...]

    @property
    def width(self) -> int:
        """How many positions the special tokens take."""
        return sum(len(part) for part in self.ids)

    def around(self, *sequences: Ids) -> tuple[Ids, Ids]:
        """Put special tokens around tokens: `input_ids`, `token_type_ids` [length]."""
        parts, types = [self.ids[0]], [self.types[0]]
        for index, sequence in enumerate(sequences):
            parts += [sequence, self.ids[index + 1]]
            types += [self.types[2 * index + 1], self.types[2 * index + 2]]
        return np.concatenate(parts), np.repeat(np.array(types, np.int64), [len(part) for part in parts])


class Encoder:
    """A tokenizer with its padding id; it neither truncates nor pads unless asked."""

    reads_text = True

    def __init__(self, tokenizer: Tokenizer, pad_id: int) -> None:
        # A copy: truncation is a state of the object, and the caller's may be in use elsewhere.
        self._plain = Tokenizer.from_str(tokenizer.to_str())
        self._plain.no_truncation()
        self._plain.no_padding()
        self._cut = Tokenizer.from_str(self._plain.to_str())
        self._words = Tokenizer.from_str(_with_blank_before_words(self._plain.to_str()))
        self.pad_id = pad_id
        self.vocab_size = int(self._plain.get_vocab_size(with_added_tokens=True))
        self.single = self._frame("a")
        self.pair = self._frame("a", "a")

    @classmethod
    def from_file(cls, path: str | Path, pad_id: int) -> Encoder:
        """Read a `tokenizer.json`."""
        try:
            return cls(Tokenizer.from_file(str(path)), pad_id)
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception
            raise UserError(f"The tokenizer cannot be read: {error}.", where=str(path)) from None

    def to_json(self) -> str:
        """Give the tokenizer as the text of a `tokenizer.json`, in one canonical form."""
        return json.dumps(json.loads(self._plain.to_str()), ensure_ascii=False, indent=1, sort_keys=False) + "\n"

    def texts(self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int) -> list[Encoding]:
        """Encode texts or pairs with special tokens, the longer text of a pair cut first."""
        self.room(max_length, self.single if pairs is None else self.pair)
        if (self._cut.truncation or {}).get("max_length") != max_length:
            self._cut.enable_truncation(max_length, strategy="longest_first")
        inputs: Any = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        return list(self._cut.encode_batch(inputs))

    def room(self, max_length: int, frame: Frame) -> int:
        """How many tokens fit between the special tokens; at least one must (`tokenizers` would not cut at all)."""
        if max_length <= frame.width:
            what = f"is {max_length}, of which special tokens take {frame.width}."
            raise wrong_option("max_seq_length", what, hint="Raise it.")
        return max_length - frame.width

    def plain(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode whole texts without special tokens."""
        return list(self._plain.encode_batch(list(texts), add_special_tokens=False))

    def words(self, sentences: Sequence[Sequence[str]]) -> list[Encoding]:
        """Encode sentences that are split into words, without special tokens."""
        inputs = [list(words) for words in sentences]
        return list(self._words.encode_batch(inputs, is_pretokenized=True, add_special_tokens=False))

    def _frame(self, text: str, pair: str | None = None) -> Frame:
        encoding = self._plain.encode(text, pair)
        ids, types, masks, owners = encoding.ids, encoding.type_ids, encoding.special_tokens_mask, encoding.sequence_ids
        parts: list[list[int]] = [[]]
        kinds: list[int] = [types[0]]
        seen: int | None = None
        for token, kind, special, owner in zip(ids, types, masks, owners, strict=True):
            if special or owner is None:
                parts[-1].append(token)
                kinds[-1] = kind if len(parts[-1]) == 1 else kinds[-1]
            elif owner != seen:
                seen = owner
                parts.append([])
                kinds += [kind, kind]
        return Frame(tuple(np.array(part, np.int64) for part in parts), tuple(kinds))


class NoTokenizer(Encoder):
    """In the place of a tokenizer, for models that are fed numbers."""

    reads_text = False

    def __init__(self, pad_id: int, vocab_size: int) -> None:
        self.pad_id, self.vocab_size = pad_id, vocab_size

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own questions
            raise AttributeError(name)
        raise UserError("The model came without a tokenizer: it takes numbers, not texts.")


@dataclass(frozen=True)
class Feature:
    """One sequence for the model: a row, or a window of one. No padding.

    `input_ids`, `token_type_ids` [length]; `example` is the index of the row that it belongs to; `alignment` is
    the task's own note of where the tokens come from. `more`: inputs beside the usual ones by name, those with one
    entry a token [length, …] or of any other shape; an `attention_mask` among them counts in the place of ones.
    """

    example: int
    input_ids: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    alignment: Any = None
    more: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.input_ids)


def softmax(logits: NDArray[Any], axis: int = -1) -> NDArray[np.float64]:
    """Exponentiate and normalise, in double precision."""
    shifted = np.asarray(logits, np.float64) - np.max(logits, axis=axis, keepdims=True)
    exponents = np.exp(shifted)
    return np.asarray(exponents / exponents.sum(axis=axis, keepdims=True))


def _with_blank_before_words(tokenizer: str) -> str:
    """Let a byte-level tokenizer see the blank before each word of a list, as it does within a text.

    RoBERTa's and ModernBERT's are saved without (`add_prefix_space`), and take every word of a list for a word's end.
    """
    content = json.loads(tokenizer)
    outer = content.get("pre_tokenizer") or {}
    for part in (outer, *outer.get("pretokenizers", ())):
        if part.get("type") == "ByteLevel":
            part["add_prefix_space"] = True
    return json.dumps(content, ensure_ascii=False)
