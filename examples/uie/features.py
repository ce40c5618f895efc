"""Prompts and texts as tokens with pointers, through the `tokenizers` library alone; batches of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Encoding, Tokenizer

from tersely import UserError

LABELS = ("start_positions", "end_positions")


def encode(rows: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, max_seq_length: int) -> list[dict[str, Any]]:
    """Tokenized rows: inputs, and for each token whether an answer starts or ends there.

    A text that is too long is cut into windows, each a row of its own: an answer that stands at a cut counts as two.
    """
    own = Tokenizer.from_str(tokenizer.to_str())  # truncation is a state of the object
    own.no_padding()
    own.no_truncation()
    for prompt in sorted({row["prompt"] for row in rows}):
        most = len(own.encode(prompt, "").ids)
        if most >= max_seq_length:
            what = f"The '--max_seq_length' option is {max_seq_length}; the prompt '{prompt}' takes {most} of it."
            raise UserError(what, hint="Raise it.")
    own.enable_truncation(max_seq_length, stride=0, strategy="only_second")
    found = []
    for row, first in zip(rows, own.encode_batch([(row["prompt"], row["content"]) for row in rows]), strict=True):
        found += [window(encoding, row["result_list"]) for encoding in (first, *first.overflowing)]
    return found


def window(encoding: Encoding, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row of the model."""
    length = len(encoding.ids)
    starts, ends = [0.0] * length, [0.0] * length
    for answer in answers:
        places = [
            place
            for place, (owner, (first, last)) in enumerate(zip(encoding.sequence_ids, encoding.offsets, strict=True))
            if owner == 1 and first < answer["end"] and last > answer["start"]
        ]
        if places:
            starts[places[0]] = ends[places[-1]] = 1.0
    inputs = {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}
    return {**inputs, LABELS[0]: starts, LABELS[1]: ends}


@dataclass(frozen=True)
class Padded:
    """A data collator: rows as tensors, as long as the longest."""

    pad_id: int

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Fill up with the id of padding, and with 0."""
        import torch

        most = max(len(row["input_ids"]) for row in rows)
        fill = {"input_ids": self.pad_id}
        batch = {
            name: torch.tensor([[*row[name], *[fill.get(name, 0)] * (most - len(row[name]))] for row in rows])
            for name in rows[0]
        }
        lengths = torch.tensor([[len(row["input_ids"])] for row in rows])
        return {**batch, "attention_mask": (torch.arange(most) < lengths).long()}
