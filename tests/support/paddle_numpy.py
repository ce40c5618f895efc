"""What Paddle's models compute, straight from their arrays, in float64: a second implementation to compare with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

erf = np.vectorize(math.erf)


def forward(
    arrays: dict[str, np.ndarray],
    family: str,
    head: str | None,
    ids: np.ndarray,
    types: np.ndarray,
    *,
    epsilon: float,
    first_position: int = 0,
    activation: str = "gelu",
    pad: int = 0,
    attention_heads: int = 4,
) -> dict[str, Any]:
    """Give `hidden` [rows, tokens, size] and, by head, `pooled` or `logits`."""
    weights = {name: array.astype(np.float64) for name, array in arrays.items()}
    prefix = f"{family}." if head else ""

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        away = x - x.mean(-1, keepdims=True)
        scaled = away / np.sqrt((away**2).mean(-1, keepdims=True) + epsilon)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    act = {"gelu": gelu, "relu": lambda x: np.maximum(x, 0)}[activation]
    tables = f"{prefix}embeddings"
    x = weights[f"{tables}.word_embeddings.weight"][ids]
    x = x + weights[f"{tables}.position_embeddings.weight"][first_position : first_position + ids.shape[1]]
    if f"{tables}.token_type_embeddings.weight" in weights:
        x = x + weights[f"{tables}.token_type_embeddings.weight"][types]
    if f"{tables}.task_type_embeddings.weight" in weights:
        x = x + weights[f"{tables}.task_type_embeddings.weight"][0]
    x = norm(x, f"{tables}.layer_norm")
    if f"{prefix}embeddings_project.weight" in weights:
        x = linear(x, f"{prefix}embeddings_project")
    hidden_padding = np.where(ids == pad, -np.inf, 0.0)[:, None, None, :]
    layers = sum(name.endswith("linear1.weight") for name in weights)
    for layer in range(layers):
        place = f"{prefix}encoder.layers.{layer}"

        def split(part: str, x: np.ndarray = x, place: str = place) -> np.ndarray:
            rows, tokens, _ = x.shape
            return linear(x, f"{place}.self_attn.{part}").reshape(rows, tokens, attention_heads, -1).swapaxes(1, 2)

        query, key, value = split("q_proj"), split("k_proj"), split("v_proj")
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1]) + hidden_padding
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        context = (shares / shares.sum(-1, keepdims=True) @ value).swapaxes(1, 2).reshape(x.shape)
        x = norm(x + linear(context, f"{place}.self_attn.out_proj"), f"{place}.norm1")
        x = norm(x + linear(act(linear(x, f"{place}.linear1")), f"{place}.linear2"), f"{place}.norm2")
    found = {"hidden": x}
    if f"{prefix}pooler.dense.weight" in weights:
        found["pooled"] = np.tanh(linear(x[:, 0], f"{prefix}pooler.dense"))
    if "classifier.dense.weight" in weights:
        inside = {"electra": gelu, "roberta": np.tanh}[family](linear(x[:, 0], "classifier.dense"))
        found["logits"] = linear(inside, "classifier.out_proj")
    elif head:
        found["logits"] = linear(found["pooled"] if head == "SequenceClassification" else x, "classifier")
    return found


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))
