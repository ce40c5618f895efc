"""Paddle's parameters under transformers' names: which there must be, of which shape, and where each one goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...errors import UserError
from .checkpoint import Checkpoint
from .pdparams import Arrays
from .safetensors_file import Float32
from .sizes import Sizes

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
class Parameter:
    """An array's name in Paddle and in transformers; `shape` is Paddle's."""

    paddle: str
    name: str
    shape: tuple[int, ...]
    transposed: bool = False

    def give(self, arrays: Arrays) -> Float32:
        """The array as transformers keeps it: linear weights [out, in], which are [in, out] in Paddle."""
        array = arrays[self.paddle]
        if array.dtype == BIT_16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        array = array.astype(np.float32, copy=False)
        return array.T if self.transposed else array


@dataclass(frozen=True)
class Mapped:
    """All parameters of the transformers model, and what of the checkpoint has no place in it."""

    parameters: tuple[Parameter, ...]
    left_out: tuple[str, ...]


def map_parameters(checkpoint: Checkpoint, arrays: Arrays, sizes: Sizes) -> Mapped:
    """Find a place for every array; a UserError names those that are missing, misshapen or have none."""
    wanted = tuple(_parameters(checkpoint, sizes))
    where = str(checkpoint.weights)
    if missing := [one.paddle for one in wanted if one.paddle not in arrays]:
        what = f"The checkpoint lacks {named(missing)}, which {checkpoint.title} needs."
        raise UserError(what, where=where, hint=f"Check the class and the sizes in {checkpoint.config.name}.")
    for one in wanted:
        array = arrays[one.paddle]
        if array.shape != one.shape:
            what = f"'{one.paddle}' must have the shape {list(one.shape)}. Got {list(array.shape)}."
            raise UserError(what, where=where, hint="The arrays are not of one model: save it anew.")
        if array.dtype not in (np.float32, np.float16, BIT_16):
            what = f"'{one.paddle}' must be of type float32, float16 or bfloat16. Got {array.dtype}."
            raise UserError(what, where=where, hint="Save the model anew with weights of one of these types.")
    rest = sorted(set(arrays) - {one.paddle for one in wanted})
    droppable = OF_PRETRAINING if checkpoint.head is None else (f"{sizes.prefix}pooler.",)
    if unknown := [name for name in rest if not name.startswith(droppable)]:
        what = f"The checkpoint holds {named(unknown)}, for which {checkpoint.title} has no place."
        raise UserError(what, where=where, hint=f"Check the class in {checkpoint.config.name}.")
    return Mapped(wanted, tuple(rest))


def named(names: list[str]) -> str:
    """Some of a list of names.

    >>> named(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _parameters(checkpoint: Checkpoint, sizes: Sizes) -> Iterator[Parameter]:
    source, target = sizes.prefix, f"{sizes.target}." if checkpoint.head else ""
    hidden, inner, width = sizes.hidden_size, sizes.intermediate_size, sizes.embedding_size
    tables = {"word": sizes.vocab_size, "position": sizes.max_position_embeddings, "token_type": sizes.type_vocab_size}
    if sizes.task_type_vocab_size:
        tables["task_type"] = sizes.task_type_vocab_size
    for name, rows in tables.items():
        if rows:
            path = f"embeddings.{name}_embeddings.weight"
            yield Parameter(source + path, target + path, (rows, width))
    yield from _norm(f"{source}embeddings.layer_norm", f"{target}embeddings.LayerNorm", width)
    if width != hidden:
        yield from _linear(f"{source}embeddings_project", f"{target}embeddings_project", width, hidden)
    for layer in range(sizes.num_hidden_layers):
        for old, new in IN_A_LAYER.items():
            old, new = f"{source}encoder.layers.{layer}.{old}", f"{target}encoder.layer.{layer}.{new}"
            if "norm" in old:
                yield from _norm(old, new, hidden)
            else:
                ins, outs = {"linear1": (hidden, inner), "linear2": (inner, hidden)}.get(
                    old.rpartition(".")[2], (hidden, hidden)
                )
                yield from _linear(old, new, ins, outs)
    yield from _head(checkpoint, sizes, source, target)


def _head(checkpoint: Checkpoint, sizes: Sizes, source: str, target: str) -> Iterator[Parameter]:
    hidden, labels = sizes.hidden_size, sizes.labels
    pooler = f"{source}pooler.dense"
    if checkpoint.head is None:
        if sizes.target != "electra":
            yield from _linear(pooler, f"{target}pooler.dense", hidden, hidden)
    elif checkpoint.answers_for != "row":
        name = "qa_outputs" if checkpoint.answers_for == "span" else "classifier"
        yield from _linear("classifier", name, hidden, labels)
    elif sizes.target in ("ernie", "bert"):
        yield from _linear(pooler, f"{target}pooler.dense", hidden, hidden)
        yield from _linear("classifier", "classifier", hidden, labels)
    elif sizes.before_2_5:
        # RoBERTa's pooler and classifier of then compute what its classification head does now: tanh between the two.
        yield from _linear(pooler, "classifier.dense", hidden, hidden)
        yield from _linear("classifier", "classifier.out_proj", hidden, labels)
    else:
        yield from _linear("classifier.dense", "classifier.dense", hidden, hidden)
        yield from _linear("classifier.out_proj", "classifier.out_proj", hidden, labels)


def _linear(old: str, new: str, ins: int, outs: int) -> Iterator[Parameter]:
    yield Parameter(f"{old}.weight", f"{new}.weight", (ins, outs), transposed=True)
    yield Parameter(f"{old}.bias", f"{new}.bias", (outs,))


def _norm(old: str, new: str, size: int) -> Iterator[Parameter]:
    yield Parameter(f"{old}.weight", f"{new}.weight", (size,))
    yield Parameter(f"{old}.bias", f"{new}.bias", (size,))
