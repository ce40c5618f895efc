"""The sizes of a model, read off its arrays and held against its config."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from ...errors import UserError
from .checkpoint import Checkpoint
from .pdparams import Arrays

CLS_TOKEN_ID = 101
"""PaddleNLP's default."""


@dataclass(frozen=True)
class Sizes:
    """Numbers under the names of transformers' configs; `target` is the `model_type` to be written."""

    target: str
    prefix: str
    """What the encoder's arrays are called by: "ernie.", or nothing where it was saved alone."""
    before_2_5: bool
    """RoBERTa as PaddleNLP had it before 2.5: a pooler under every head."""
    vocab_size: int
    embedding_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    max_position_embeddings: int
    type_vocab_size: int
    task_type_vocab_size: int
    labels: int


def read_sizes(checkpoint: Checkpoint, arrays: Arrays) -> Sizes:
    """Measure the arrays; a UserError where the config says otherwise."""
    family, settings = checkpoint.family, checkpoint.settings
    prefix = f"{family}." if any(name.startswith(f"{family}.") for name in arrays) else ""
    measure = _Measure(checkpoint, arrays, prefix)
    before_2_5 = family == "roberta" and _before_2_5(checkpoint, f"{prefix}pooler.dense.weight" in arrays)
    from_zero = before_2_5 and settings.get("cls_token_id", CLS_TOKEN_ID) != 0
    found = re.compile(re.escape(f"{prefix}encoder.layers.") + r"(\d+)\.")
    layers = {int(match[1]) for match in map(found.match, arrays) if match}
    vocabulary, embedding = measure("embeddings.word_embeddings.weight")
    projected = family == "electra" and f"{prefix}embeddings_project.weight" in arrays
    sizes = Sizes(
        # Before 2.5 positions began with 0 but for byte-level BPE. That is BERT's build, and transformers' BERT.
        target="bert" if from_zero else family,
        prefix=prefix,
        before_2_5=before_2_5,
        vocab_size=vocabulary,
        embedding_size=embedding,
        hidden_size=measure("embeddings_project.weight")[1] if projected else embedding,
        intermediate_size=measure("encoder.layers.0.linear1.weight")[1],
        num_hidden_layers=max(layers) + 1,
        max_position_embeddings=measure("embeddings.position_embeddings.weight")[0],
        type_vocab_size=0 if _no_types(checkpoint) else measure("embeddings.token_type_embeddings.weight")[0],
        task_type_vocab_size=measure("embeddings.task_type_embeddings.weight")[0] if _tasks(checkpoint) else 0,
        labels=_labels(checkpoint, arrays, measure),
    )
    _compare(checkpoint, sizes)
    return sizes


@dataclass(frozen=True)
class _Measure:
    checkpoint: Checkpoint
    arrays: Arrays
    prefix: str

    def __call__(self, name: str) -> tuple[int, int]:
        """The shape [rows, columns] of one of the encoder's matrices."""
        return self.whole(self.prefix + name)

    def whole(self, name: str) -> tuple[int, int]:
        where, title = str(self.checkpoint.weights), self.checkpoint.title
        if name not in self.arrays:
            hint = f"Check the class and the sizes in {self.checkpoint.config.name}."
            raise UserError(f"The checkpoint lacks '{name}', which {title} needs.", where=where, hint=hint)
        shape = self.arrays[name].shape
        if len(shape) != 2:
            hint = "The arrays are not of one model: save it anew."
            raise UserError(f"'{name}' must be a matrix. Got the shape {list(shape)}.", where=where, hint=hint)
        return shape[0], shape[1]


def _before_2_5(checkpoint: Checkpoint, pooler: bool) -> bool:
    """PaddleNLP 2.5 took the pooler from under RoBERTa's heads. RobertaModel has kept it: there the config tells."""
    settings = checkpoint.settings
    if checkpoint.title != "RobertaModel":
        return pooler
    if checkpoint.nested or settings.get("cls_token_id", CLS_TOKEN_ID) == 0:
        return checkpoint.nested
    version = re.match(r"(\d+)\.(\d+)", str(settings.get("paddlenlp_version")))
    if version is None:
        raise UserError(
            "A RobertaModel's positions begin with 0 up to PaddleNLP 2.4 and behind the padding since, and the folder "
            "does not tell which PaddleNLP it is of.",
            where=str(checkpoint.config),
            hint='Write the version that trained it there, as in "paddlenlp_version": "2.6.1".',
        )
    return (int(version[1]), int(version[2])) < (2, 5)


def _no_types(checkpoint: Checkpoint) -> bool:
    """Some of ERNIE's encoders have no table of token types."""
    return checkpoint.family == "ernie" and checkpoint.settings.get("type_vocab_size") == 0


def _tasks(checkpoint: Checkpoint) -> bool:
    return checkpoint.family == "ernie" and bool(checkpoint.settings.get("use_task_id", False))


def _labels(checkpoint: Checkpoint, arrays: Arrays, measure: _Measure) -> int:
    if checkpoint.head is None:
        return 0
    deep = "classifier.out_proj.weight"
    return measure.whole(deep if deep in arrays else "classifier.weight")[1]


def _compare(checkpoint: Checkpoint, sizes: Sizes) -> None:
    said = dict(checkpoint.settings)
    if checkpoint.family != "electra":
        said.pop("embedding_size", None)
    if not _tasks(checkpoint):
        said.pop("task_type_vocab_size", None)  # it says how large a table would be
    for key, found in dataclasses.asdict(sizes).items():
        if key in said and said[key] != found and key not in ("target", "prefix", "before_2_5", "labels"):
            raise UserError(
                f"The config says that '{key}' is {said[key]!r}, the arrays say {found}.",
                where=str(checkpoint.config),
                hint=f"The config and {checkpoint.weights.name} are not of one model, or one of them was changed.",
            )
