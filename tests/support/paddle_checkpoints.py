"""Folders as PaddleNLP writes them, with random weights. (Paddle itself is not needed: they are JSON and a pickle.)"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = {"ernie": "Ernie", "bert": "Bert", "roberta": "Roberta", "electra": "Electra"}
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
LABELS = ("bad", "fair", "good")
VOCABULARY = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "film",
    "of",
    "quiet",
    "grace",
    "##s",
    "今",
    "天",
    "Film",
)
HIDDEN, INNER, LAYERS, ATTENTION_HEADS, POSITIONS = 16, 24, 2, 4, 20

MORE: dict[str, dict[str, Any]] = {
    "ernie": {"use_task_id": True, "task_type_vocab_size": 3, "type_vocab_size": 4, "hidden_act": "relu"},
    "bert": {"type_vocab_size": 2, "layer_norm_eps": 1e-3},
    "roberta": {"type_vocab_size": 2, "layer_norm_eps": 1e-3, "cls_token_id": 2, "pad_token_id": 0},
    "electra": {"type_vocab_size": 2, "layer_norm_eps": 1e-3, "embedding_size": 8},
}
"""Settings in which the families differ, most of them away from the defaults."""


class Tensor:
    """Pickles as Paddle's tensors do: `tuple((name, array))`."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self.content = (name, array)

    def __reduce__(self) -> Any:
        return tuple, (self.content,)


def settings_of(family: str, **changes: Any) -> dict[str, Any]:
    """The encoder's settings."""
    common = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": ATTENTION_HEADS,
        "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS,
        "hidden_act": "gelu",
        "pad_token_id": 0,
    }
    return {**common, **MORE[family], **changes}


def arrays_of(family: str, head: str | None, settings: dict[str, Any], *, before_2_5: bool = False) -> dict[str, Any]:
    """Random arrays under Paddle's names; linear weights are [in, out]."""
    draw = np.random.default_rng(7)
    prefix = f"{family}." if head else ""
    hidden, inner, labels = settings["hidden_size"], settings["intermediate_size"], len(LABELS)
    width = settings.get("embedding_size", hidden)
    arrays: dict[str, np.ndarray] = {}

    def table(name: str, *shape: int) -> None:
        arrays[name] = draw.normal(0, 0.3, shape).astype(np.float32)

    def norm(name: str, size: int) -> None:
        arrays[f"{name}.weight"] = draw.normal(1, 0.1, size).astype(np.float32)
        arrays[f"{name}.bias"] = draw.normal(0, 0.1, size).astype(np.float32)

    def linear(name: str, ins: int, outs: int) -> None:
        table(f"{name}.weight", ins, outs)
        arrays[f"{name}.bias"] = draw.normal(0, 0.1, outs).astype(np.float32)

    rows = {"word": settings["vocab_size"], "position": settings["max_position_embeddings"]}
    rows["token_type"] = settings["type_vocab_size"]
    if settings.get("use_task_id"):
        rows["task_type"] = settings["task_type_vocab_size"]
    for kind, count in rows.items():
        if count:
            table(f"{prefix}embeddings.{kind}_embeddings.weight", count, width)
    norm(f"{prefix}embeddings.layer_norm", width)
    if width != hidden:
        linear(f"{prefix}embeddings_project", width, hidden)
    for layer in range(settings["num_hidden_layers"]):
        place = f"{prefix}encoder.layers.{layer}"
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(f"{place}.self_attn.{part}", hidden, hidden)
        linear(f"{place}.linear1", hidden, inner)
        linear(f"{place}.linear2", inner, hidden)
        norm(f"{place}.norm1", hidden)
        norm(f"{place}.norm2", hidden)
    if family in ("ernie", "bert") or (family == "roberta" and (before_2_5 or head is None)):
        linear(f"{prefix}pooler.dense", hidden, hidden)
    deep = head == "SequenceClassification" and (family == "electra" or (family == "roberta" and not before_2_5))
    if deep:
        linear("classifier.dense", hidden, hidden)
        linear("classifier.out_proj", hidden, labels)
    elif head:
        linear("classifier", hidden, 2 if head == "QuestionAnswering" else labels)
    return arrays


def config_of(family: str, head: str | None, settings: dict[str, Any], *, nested: bool) -> dict[str, Any]:
    """The content of model_config.json (nested) or of config.json."""
    title = CLASSES[family]
    if nested:
        encoder = {**settings, "init_class": f"{title}Model"}
        if head is None:
            return encoder
        labels = {} if head == "QuestionAnswering" else {"num_classes": len(LABELS)}
        return {"init_args": [encoder], **labels, "init_class": f"{title}For{head}"}
    config = {**settings, "architectures": [f"{title}For{head}" if head else f"{title}Model"], "model_type": family}
    if head in HEADS[:2]:
        config["id2label"] = {str(i): name for i, name in enumerate(LABELS)}
    return {"paddlenlp_version": "2.6.1" if head is None else None, **config}


def write_pickle(path: Path, arrays: dict[str, Any], *, form: str = "tuples", protocol: int = 4) -> None:
    """Write the arrays as `paddle.save` does: tensors as tuples, or plain arrays and a table of their names."""
    if form == "tuples":
        content: dict[str, Any] = {name: Tensor(f"w_{i}", array) for i, (name, array) in enumerate(arrays.items())}
    else:
        content = {**arrays, "StructuredToParameterName@@": {name: f"w_{i}" for i, name in enumerate(arrays)}}
    path.write_bytes(pickle.dumps(content, protocol=protocol))


def build_paddle(
    folder: Path,
    family: str,
    head: str | None = "SequenceClassification",
    *,
    nested: bool = False,
    before_2_5: bool = False,
    form: str = "tuples",
    **changes: Any,
) -> dict[str, np.ndarray]:
    """Write a folder; give its arrays."""
    folder.mkdir(parents=True)
    settings = settings_of(family, **changes)
    arrays = arrays_of(family, head, settings, before_2_5=before_2_5)
    name = "model_config.json" if nested else "config.json"
    (folder / name).write_text(json.dumps(config_of(family, head, settings, nested=nested)), encoding="utf-8")
    write_pickle(folder / "model_state.pdparams", arrays, form=form)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    return arrays
