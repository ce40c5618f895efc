"""A small encoder written by hand, ready in a tenth of a second: a real ONNX graph, and what NumPy says it gives.

Its rows are labelled by the model itself: FP32 scores 1, and every answer that INT8 changes costs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from learnable import conll, rows, single, squad, tsv
from models import build_tokenizer

WIDTH = 64
"""Outputs that a layer must have to be quantized."""
LABELS = {
    "SequenceClassification": ("bad", "fair", "good"),
    "TokenClassification": ("O", "B-PER", "I-PER"),
    "QuestionAnswering": (),
}
TRAIN, DEV, TEST = 320, 120, 60


@dataclass(frozen=True)
class Place:
    """Where a model and its rows lie."""

    folder: Path
    model: Stack

    @property
    def graph(self) -> Path:
        return self.folder / "model.onnx"

    @property
    def train(self) -> Path:
        return next(self.folder.glob("train.*"))

    @property
    def dev(self) -> Path:
        return next(self.folder.glob("dev.*"))

    @property
    def test(self) -> Path:
        return next(self.folder.glob("test.*"))


class Stack:
    """logits = relu(… relu(table[ids] · w0) · w1 …) · head + bias, their mean over tokens where the task answers once.

    `harmful`: a layer with one huge weight that meets an input which is always 0: nothing to a float, and the end of
    all other weights where one scale serves them all (`--weight_quantize_type abs_max`).
    """

    def __init__(self, vocabulary: int, head: str, layers: int, harmful: int | None, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.head, outputs = head, len(LABELS[head]) or 2
        self.table = random.normal(0, 1, (vocabulary, WIDTH)).astype(np.float32)
        self.weights = [random.normal(0, 1.4 / 8, (WIDTH, WIDTH)).astype(np.float32) for _ in range(layers)]
        self.last = random.normal(0, 1, (WIDTH, outputs)).astype(np.float32)
        self.bias = np.zeros(outputs, np.float32)
        if harmful is not None:
            if harmful == 0:
                self.table[:, 0] = 0
            else:
                self.weights[harmful - 1][:, 0] = 0
            self.weights[harmful][0, 0] = 1e4

    def logits(self, ids: Sequence[int]) -> Any:
        """[outputs] or, where the task answers for each token, [tokens, outputs]."""
        value = self.table[list(ids)]
        for weight in self.weights:
            value = np.maximum(value @ weight, 0)
        found = value @ self.last + self.bias
        return found.mean(axis=0) if self.head == "SequenceClassification" else found

    def write(self, path: Path) -> None:
        """Write the same as an ONNX graph."""
        import onnx
        from onnx import TensorProto as T
        from onnx import helper as h
        from onnx import numpy_helper

        arrays = {"embeddings.weight": self.table, "head.weight": self.last, "head.bias": self.bias}
        nodes = [h.make_node("Gather", ["embeddings.weight", "input_ids"], ["v0"])]
        for i, weight in enumerate(self.weights):
            name = layer_name(i)
            arrays[name] = weight
            nodes += [h.make_node("MatMul", [f"v{i}", name], [f"p{i}"]), h.make_node("Relu", [f"p{i}"], [f"v{i + 1}"])]
        nodes += [h.make_node("Cast", ["attention_mask"], ["mask"], to=T.FLOAT)]
        nodes += [h.make_node("Unsqueeze", ["mask", "two"], ["column"])]
        nodes += [h.make_node("MatMul", [f"v{len(self.weights)}", "head.weight"], ["unbiased"])]
        nodes += [h.make_node("Add", ["unbiased", "head.bias"], ["per_token"])]
        nodes += [h.make_node("Mul", ["per_token", "column"], ["kept"])]
        arrays |= {"two": np.array([2]), "one": np.array([1])}
        shape: list[Any] = ["batch", "length"]
        outputs = {"logits": ["batch", "length", self.last.shape[1]]}
        if self.head == "SequenceClassification":
            nodes += [h.make_node("ReduceSum", ["kept", "one"], ["sum"], keepdims=0)]
            nodes += [h.make_node("ReduceSum", ["column", "one"], ["count"], keepdims=0)]
            nodes += [h.make_node("Div", ["sum", "count"], ["logits"])]
            outputs = {"logits": ["batch", self.last.shape[1]]}
        elif self.head == "TokenClassification":
            nodes[-1].output[0] = "logits"
        else:
            nodes += [h.make_node("Split", ["kept"], ["starts", "ends"], axis=2, num_outputs=2)]
            nodes += [h.make_node("Squeeze", ["starts", "two"], ["start_logits"])]
            nodes += [h.make_node("Squeeze", ["ends", "two"], ["end_logits"])]
            outputs = {"start_logits": shape, "end_logits": shape}
        graph = h.make_graph(
            nodes,
            "stack",
            [h.make_tensor_value_info(name, T.INT64, shape) for name in ("input_ids", "attention_mask")],
            [h.make_tensor_value_info(name, T.FLOAT, dims) for name, dims in outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in arrays.items()],
        )
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8), path)


def layer_name(layer: int) -> str:
    return f"encoder.layer.{layer}.dense.weight"


def write_place(
    folder: Path, head: str = "SequenceClassification", *, layers: int = 4, harmful: int | None = None, seed: int = 0
) -> Place:
    """Write graph, config, tokenizer and rows to a folder; same arguments, same bytes."""
    tokenizer = build_tokenizer(folder, "bert", vocab=400)
    model = Stack(tokenizer.get_vocab_size(), head, layers, harmful, seed)
    made = rows(single, TRAIN + DEV + TEST, seed=1)
    texts = [row["text"] for row in made]
    # Every label comes up, and some answers are close.
    everything = [model.logits(tokenizer.encode(text).ids) for text in texts]
    model.bias = -np.concatenate([np.atleast_2d(logits) for logits in everything]).mean(axis=0)
    model.write(folder / "model.onnx")
    config: dict[str, Any] = {
        "architectures": [f"BertFor{head}"],
        "model_type": "bert",
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": 96,
        "pad_token_id": 0,
    }
    if LABELS[head]:
        config["id2label"] = dict(enumerate(LABELS[head]))
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    splits = {"train": texts[:TRAIN], "dev": texts[TRAIN : TRAIN + DEV], "test": texts[TRAIN + DEV :]}
    for name, some in splits.items():
        _write_rows(folder, name, some, model, tokenizer)
    return Place(folder, model)


def _write_rows(folder: Path, name: str, texts: list[str], model: Stack, tokenizer: Any) -> None:
    encoded = [tokenizer.encode(text) for text in texts]
    found = [model.logits(encoding.ids) for encoding in encoded]
    labels = LABELS[model.head]
    if model.head == "SequenceClassification":
        records = [
            {"text": text, "label": labels[int(logits.argmax())]} for text, logits in zip(texts, found, strict=True)
        ]
        tsv(folder / f"{name}.tsv", records)
    elif model.head == "TokenClassification":
        tagged = []
        for text, encoding, logits in zip(texts, encoded, found, strict=True):
            firsts = {word: place for place, word in reversed(list(enumerate(encoding.word_ids))) if word is not None}
            tags = [labels[int(logits[firsts[word]].argmax())] for word in sorted(firsts)]
            tagged.append({"words": text.split(), "tags": tags})
        conll(folder / f"{name}.conll", tagged)
    else:
        questions = []
        for number, text in enumerate(texts):
            answer = text.split()[number % 5]
            start = text.index(answer)
            answers = [{"text": answer, "answer_start": start}]
            questions.append(
                {"id": f"{name}{number}", "question": "what is the capital", "context": text, "answers": answers}
            )
        squad(folder / f"{name}.json", questions)
