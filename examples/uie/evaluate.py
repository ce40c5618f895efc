"""Span F1 of an extractor: of a fine-tuned folder in torch, or of a compressed one without torch.

An answer counts if its first and its last token are right:

    python examples/uie/evaluate.py --model_path compressed/uie/best --test_path data/uie/test.txt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data import read_rows
from features import LABELS, encode
from tersely import UserError, runtime
from tersely.artifact import is_artifact
from tersely.errors import existing
from tersely.runtime import Predictor

LIMIT = 0.5
"""Chances above it are a yes."""


class SpanEvaluator:
    """Counts answers that are right, found and wanted, as PaddleNLP's does."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.right = self.found = self.wanted = 0

    def update(self, start: Any, end: Any, start_labels: Any, end_labels: Any) -> None:
        """Count a batch of rows: chances and labels, [rows, length] each."""
        sides = (np.asarray(side) for side in (start, end, start_labels, end_labels))
        for row in zip(*sides, strict=True):
            right, found, wanted = counts(*row)
            self.right, self.found, self.wanted = self.right + right, self.found + found, self.wanted + wanted

    def accumulate(self) -> tuple[float, float, float]:
        """Precision, recall and F1."""
        precision, recall = self.right / max(self.found, 1), self.right / max(self.wanted, 1)
        return precision, recall, 2 * self.right / max(self.found + self.wanted, 1)


def counts(start: Any, end: Any, start_labels: Any, end_labels: Any) -> tuple[int, int, int]:
    """Answers of one row that are right, found and wanted; chances and labels are [length] each."""
    found, wanted = spans(start, end), spans(start_labels, end_labels)
    return len(found & wanted), len(found), len(wanted)


def spans(start: Any, end: Any) -> set[tuple[int, int]]:
    """First and last token of each answer: a start and the nearest end at or behind it, no other start between.

    >>> sorted(spans([0.9, 0, 0.8, 0, 0.7], [0, 0.9, 0, 0.8, 0]))
    [(0, 1), (2, 3)]
    """
    starts, ends = (np.flatnonzero(np.asarray(side) > LIMIT) for side in (start, end))
    nearest = zip(starts, np.searchsorted(ends, starts), strict=True)
    pairs = {int(ends[place]): int(first) for first, place in nearest if place < len(ends)}  # later starts win
    return {(first, last) for last, first in pairs.items()}


def open_extractor(path: str) -> tuple[Predictor, Tokenizer]:
    """A compressed extractor on its engine, or a folder of `finetune.py` in torch; with its tokenizer."""
    folder = existing(path, "folder")
    if is_artifact(folder):
        return runtime.load(folder), _tokenizer(folder)
    from model import UIE, load_model
    from tersely.engines.torch import TorchEngine, input_names
    from tersely.tasks import Encoder, Own

    model = load_model(folder, UIE)
    task = Own("UIE", input_names(model), LABELS, labels_last=False, threshold=LIMIT)
    encoder = Encoder(_tokenizer(folder), model.config.pad_token_id or 0)
    return Predictor(task, encoder, TorchEngine(model, outputs=LABELS)), _tokenizer(folder)


def score_rows(predictor: Predictor, rows: Sequence[dict[str, Any]]) -> NDArray[np.int64]:
    """What `counts` gives for each tokenized row, [rows, 3]."""
    outputs = [tuple(answer.outputs.values()) for answer in predictor.predict(rows)]
    return np.array(
        [counts(*output, *(row[name] for name in LABELS)) for output, row in zip(outputs, rows, strict=True)]
    )


def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(existing(folder / "tokenizer.json", "tokenizer")))


def command_line() -> argparse.ArgumentParser:
    """The script's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_path", required=True, help="artifact, or folder of finetune.py")
    parser.add_argument("--test_path", required=True, help="rows of data.py")
    parser.add_argument("--max_seq_length", type=int, default=128)
    return parser


def main() -> None:
    """Score and print."""
    args = command_line().parse_args()
    metric = SpanEvaluator()
    try:
        predictor, tokenizer = open_extractor(args.model_path)
        rows = encode(read_rows(args.test_path), tokenizer, args.max_seq_length)
        metric.right, metric.found, metric.wanted = score_rows(predictor, rows).sum(axis=0).tolist()
    except UserError as error:
        error.on_command_line = True
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    precision, recall, f1 = metric.accumulate()
    scores = f"precision {100 * precision:.2f}, recall {100 * recall:.2f}, F1 {100 * f1:.2f}"
    sys.stdout.write(f"{args.model_path}: {scores} on {len(rows)} rows ({predictor.engine.name})\n")


if __name__ == "__main__":
    main()
