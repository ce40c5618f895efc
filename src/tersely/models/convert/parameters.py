"""Paddle's parameters under transformers' names: which there must be, of which shape, and where each one goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...quant_map import Floats
from .checkpoint import Checkpoint, Sizes
from .pdparams import Arrays

IN_A_LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}
OF_PRETRAINING = ("cls.", "lm_head.", "discriminator_predictions.")
"""Heads that an encoder goes without."""
BIT_16 = np.dtype(np.uint16)
"""What Paddle's bfloat16 becomes in NumPy: the upper half of a float32."""


@dataclass(frozen=True)
class PaddleParameter:
    """An array's name in Paddle and in transformers; `shape` is Paddle's."""

    paddle: str
    name: str
    shape: tuple[int, ...]
    transposed: bool = False

    def give(self, arrays: Arrays) -> Floats:
        """The array as transformers keeps it: linear weights [out, in], which are [in, out] in Paddle."""
        array = arrays[self.paddle]
        if array.dtype == BIT_16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        array = array.astype(np.float32, copy=False)
        return array.T if self.transposed else array


def map_parameters(
    checkpoint: Checkpoint, arrays: Arrays, sizes: Sizes
) -> tuple[dict[str, PaddleParameter], tuple[str, ...]]:
    """All parameters of the transformers model by name, and the arrays of an encoder's heads, which it goes without.

    A UserError names arrays that are missing, misshapen or have no place.
    """
    wanted = list(_parameters(checkpoint, sizes))
    if missing := [parameter.paddle for parameter in wanted if parameter.paddle not in arrays]:
        what = f"The checkpoint lacks {named(missing)}, which {checkpoint.title} needs."
        raise checkpoint.bad_weights(what, f"Check the class and the sizes in {checkpoint.config.name}.")
    for parameter in wanted:
        array = arrays[parameter.paddle]
        if array.shape != parameter.shape:
            what = f"'{parameter.paddle}' must have the shape {list(parameter.shape)}. Got {list(array.shape)}."
            raise checkpoint.bad_weights(what, "The arrays are not of one model: save it anew.")
        if array.dtype not in (np.float32, np.float16, BIT_16):
            what = f"'{parameter.paddle}' must be of type float32, float16 or bfloat16. Got {array.dtype}."
            raise checkpoint.bad_weights(what, "Save the model anew with weights of one of these types.")
    rest = sorted(set(arrays) - {parameter.paddle for parameter in wanted})
    droppable = OF_PRETRAINING if checkpoint.head is None else (f"{sizes.prefix}pooler.",)
    if unknown := [name for name in rest if not name.startswith(droppable)]:
        what = f"The checkpoint holds {named(unknown)}, for which {checkpoint.title} has no place."
        raise checkpoint.bad_weights(what, f"Check the class in {checkpoint.config.name}.")
    return {parameter.name: parameter for parameter in wanted}, tuple(rest)


def named(names: list[str]) -> str:
    """Some of a list of names.

    >>> named(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _parameters(checkpoint: Checkpoint, sizes: Sizes) -> Iterator[PaddleParameter]:
    source, target = sizes.prefix, f"{sizes.target}." if checkpoint.head else ""
    hidden, inner, width = sizes.hidden_size, sizes.intermediate_size, sizes.embedding_size
    tables = {"word": sizes.vocab_size, "position": sizes.max_position_embeddings, "token_type": sizes.type_vocab_size}
    if sizes.task_type_vocab_size:
        tables["task_type"] = sizes.task_type_vocab_size
    for name, rows in tables.items():
        if rows:
            path = f"embeddings.{name}_embeddings.weight"
            yield PaddleParameter(source + path, target + path, (rows, width))
    yield from _layer(f"{source}embeddings.layer_norm", f"{target}embeddings.LayerNorm", width)
    if width != hidden:
        yield from _layer(f"{source}embeddings_project", f"{target}embeddings_project", width, hidden)
    shapes = {"norm1": [hidden], "norm2": [hidden], "linear1": [hidden, inner], "linear2": [inner, hidden]}
    for layer in range(sizes.num_hidden_layers):
        for old, new in IN_A_LAYER.items():
            shape = shapes.get(old, [hidden, hidden])
            yield from _layer(f"{source}encoder.layers.{layer}.{old}", f"{target}encoder.layer.{layer}.{new}", *shape)
    yield from _head(checkpoint, sizes, source, target)


def _head(checkpoint: Checkpoint, sizes: Sizes, source: str, target: str) -> Iterator[PaddleParameter]:
    hidden, labels = sizes.hidden_size, sizes.labels
    pooler = f"{source}pooler.dense"
    if checkpoint.head is None:
        if sizes.target != "electra":
            yield from _layer(pooler, f"{target}pooler.dense", hidden, hidden)
    elif checkpoint.answers_for != "row":
        name = "qa_outputs" if checkpoint.answers_for == "span" else "classifier"
        yield from _layer("classifier", name, hidden, labels)
    elif sizes.target in ("ernie", "bert"):
        yield from _layer(pooler, f"{target}pooler.dense", hidden, hidden)
        yield from _layer("classifier", "classifier", hidden, labels)
    elif sizes.before_2_5:
        # RoBERTa's pooler and classifier of then compute what its classification head does now: tanh between the two.
        yield from _layer(pooler, "classifier.dense", hidden, hidden)
        yield from _layer("classifier", "classifier.out_proj", hidden, labels)
    else:
        yield from _layer("classifier.dense", "classifier.dense", hidden, hidden)
        yield from _layer("classifier.out_proj", "classifier.out_proj", hidden, labels)


def _layer(old: str, new: str, *shape: int) -> Iterator[PaddleParameter]:
    """The weight and bias of a linear layer ([in, out] in Paddle) or of a norm ([size])."""
    yield PaddleParameter(f"{old}.weight", f"{new}.weight", shape, transposed=len(shape) == 2)
    yield PaddleParameter(f"{old}.bias", f"{new}.bias", shape[-1:])
