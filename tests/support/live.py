"""Live models, datasets and trainers for tests: small, random, real."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer

from learnable import WORDS
from models import build
from tersely import CompressionArguments, Trainer

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
QUICK: dict[str, Any] = {"engines": "onnxruntime", "algo_list": "mse"}
ROWS = 48


def texts(count: int = ROWS, seed: int = 0) -> list[str]:
    draw = random.Random(seed)  # noqa: S311 - nothing secret
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(count)]


def folder(place: Path, head: str = "SequenceClassification", family: str = "bert", **more: Any) -> Path:
    """A model whose layers are wide enough for INT8."""
    names = dict(enumerate(TAGS)) if head == "TokenClassification" else None
    labels = {"labels": 5, "id2label": names, "label2id": {n: i for i, n in names.items()}} if names else {}
    return build(place, family, head, hidden=64, std=0.15, vocab=400, **labels, **more)


def load(place: Path) -> tuple[Any, Any]:
    """The live model in training mode, as a script has it after training, and its tokenizer."""
    import transformers

    head = next(h for h in ("Sequence", "Token", "Question") if h in (place / "config.json").read_text())
    kind = {"Sequence": "SequenceClassification", "Token": "TokenClassification", "Question": "QuestionAnswering"}[head]
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(place)
    return model.train(), AutoTokenizer.from_pretrained(place)


def classified(tokenizer: Any, count: int = ROWS, labels: int = 3, **how: Any) -> list[dict[str, Any]]:
    return [{**tokenizer(text, **how), "labels": number % labels} for number, text in enumerate(texts(count))]


def arguments(place: Path, strategy: Any = "dynamic", **more: Any) -> CompressionArguments:
    quick = {"engines": "onnxruntime"} if "ptq" not in str(strategy) else QUICK
    return CompressionArguments(str(place), **{"strategy": strategy, "use_cpu": True, "report_to": [], **quick, **more})


class Pointers(nn.Module):
    """UIE-like: an encoder, and for each position the chance that an answer starts, and that it ends there."""

    def __init__(self, encoder: nn.Module, hidden: int = 64) -> None:
        super().__init__()
        self.encoder = encoder
        self.start, self.end = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def forward(self, input_ids: Any, token_type_ids: Any = None, attention_mask: Any = None) -> Any:
        states = self.encoder(input_ids=input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)[0]
        return tuple(torch.sigmoid(head(states)).squeeze(-1) for head in (self.start, self.end))


def pointers(place: Path, seed: int = 0) -> Pointers:
    torch.manual_seed(seed)
    return Pointers(AutoModel.from_pretrained(place, add_pooling_layer=False))


def pointed(tokenizer: Any, count: int = ROWS, length: int = 16) -> list[dict[str, Any]]:
    """Rows of one length without a mask, as PaddleNLP's scripts make them; two labels with one entry a token."""
    rows = []
    for number, text in enumerate(texts(count)):
        ids = tokenizer(text, padding="max_length", truncation=True, max_length=length)
        start = [float(place == 1 + number % 3) for place in range(length)]
        end = [float(place == 2 + number % 3) for place in range(length)]
        inputs = {"input_ids": ids["input_ids"], "token_type_ids": ids["token_type_ids"]}
        rows.append({**inputs, "start_ids": start, "end_ids": end})
    return rows


def both_ends(outputs: Any, labels: Any) -> Any:
    """A criterion over two outputs and two labels."""
    pairs = zip(outputs, labels, strict=True)
    return sum(nn.functional.binary_cross_entropy(logits, label.float()) for logits, label in pairs) / 2


def trainer(model: Any, args: Any, **more: Any) -> Trainer:
    return Trainer(model=model, args=args, **more)
