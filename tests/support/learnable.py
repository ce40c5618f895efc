"""Small data that a tiny model can learn in a second or two: one word of a row decides its answer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from models import SENTENCES, build

WORDS = sorted({word.strip(".,;?").lower() for sentence in SENTENCES[:6] for word in sentence.split()})
DECIDING = ("dark", "dog", "fox", "grace", "friday", "paris", "berlin", "old", "river", "percent", "capital")
FILLERS = [word for word in WORDS if word not in DECIDING]
LENGTH = 24
"""The number of tokens that every row fits in."""
TRAIN, DEV = 140, 60
LEARN: dict[str, Any] = {"learning_rate": 3e-3, "num_train_epochs": 4, "per_device_train_batch_size": 8}
"""What it takes to learn them."""


def tiny(folder: Path, head: str = "SequenceClassification", family: str = "bert", **fields: Any) -> Path:
    """Build a one-layer model that knows all the words and begins near zero, as models do."""
    return build(folder, family, head, **{"labels": 2, "layers": 1, "vocab": 400, "std": 0.05, **fields})


def sentence(draw: random.Random, *inside: str) -> list[str]:
    """Some words in any order, these among them."""
    words = draw.sample(FILLERS, 6)
    for word in inside:
        words.insert(draw.randrange(len(words) + 1), word)
    return words


def single(draw: random.Random) -> dict[str, Any]:
    label = draw.choice(["bad", "good"])
    return {"text": " ".join(sentence(draw, "grace" if label == "good" else "dark")), "label": label}


def pair(draw: random.Random) -> dict[str, Any]:
    row = single(draw)
    return {"text": " ".join(sentence(draw)), "text_pair": row["text"], "label": row["label"]}


def several(draw: random.Random) -> dict[str, Any]:
    names = {"animal": "fox", "place": "paris", "time": "friday"}
    labels = [label for label in names if draw.random() < 0.5]
    return {"text": " ".join(sentence(draw, *(names[label] for label in labels))), "labels": labels}


def number(draw: random.Random) -> dict[str, Any]:
    value = draw.choice([0.0, 1.0, 2.0])
    return {"text": " ".join(sentence(draw, *["dark", "fox", "grace"][int(value) :][:1])), "label": value}


SCHEMES = {
    "BIOES": (["S-LOC"], ["B-PER", "I-PER", "E-PER"]),
    "BMES": (["S-LOC"], ["B-PER", "M-PER", "E-PER"]),
    "IOB2": (["B-LOC"], ["B-PER", "I-PER", "I-PER"]),
    "IOB1": (["I-LOC"], ["I-PER", "I-PER", "I-PER"]),
}


def tagged(scheme: str) -> Callable[[random.Random], dict[str, Any]]:
    """A place of one word and a name of three, tagged in a scheme."""
    place, name = SCHEMES[scheme]

    def row(draw: random.Random) -> dict[str, Any]:
        words = sentence(draw)
        tags = ["O"] * len(words)
        for entity, its in ((["paris"], place), (["old", "river", "dog"], name)):
            at = draw.choice([i for i in range(len(words) + 1) if i == len(words) or tags[i] == "O"])
            words[at:at], tags[at:at] = entity, its
        return {"words": words, "tags": tags}

    return row


def question(draw: random.Random) -> dict[str, Any]:
    """The answer is the one town that the context names."""
    answer = draw.choice(["paris", "berlin"])
    context = " ".join(sentence(draw, answer))
    return {
        "id": str(draw.random()),
        "question": "what is the capital",
        "context": context,
        "answers": [{"text": answer, "answer_start": context.index(answer)}],
    }


def rows(make: Callable[[random.Random], dict[str, Any]], count: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)  # noqa: S311 - nothing secret
    return [make(draw) for _ in range(count)]


def jsonl(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def tsv(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(records[0]), *("\t".join(str(value) for value in record.values()) for record in records)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def conll(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    blocks = ["".join(f"{w} {t}\n" for w, t in zip(row["words"], row["tags"], strict=True)) for row in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def squad(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    paragraphs = [
        {
            "context": row["context"],
            "qas": [{"id": row["id"], "question": row["question"], "answers": row["answers"]}],
        }
        for row in records
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}, indent=1))
    return path


def finetunable(folder: Path) -> Path:
    """Write an encoder and the rows that teach it: `encoder`, `train.tsv`, `dev.tsv`."""
    split(folder, single, tsv, "tsv")
    tiny(folder / "encoder")
    return folder


def split(
    folder: Path, make: Callable[[random.Random], dict[str, Any]], write: Callable[..., Path], suffix: str
) -> tuple[Path, Path]:
    """Write a train and a dev file."""
    made = rows(make, TRAIN + DEV)
    return write(folder / f"train.{suffix}", made[:TRAIN]), write(folder / f"dev.{suffix}", made[TRAIN:])
