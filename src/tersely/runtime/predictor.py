"""Open an artifact and make it answer: `load`; `Predictor`, a task, a tokenizer and an engine together; batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import artifact as artifacts
from .. import engines
from ..artifact import Artifact
from ..engines import Batch, Engine
from ..errors import UserError
from ..tasks import Encoder, Feature, Task, from_json
from ..tasks.encoder import NoTokenizer
from .choose import choose

HUB = "hub:"
"""How an address on the Hugging Face Hub begins."""

MAX_BATCH_TOKENS = 16_384


def load(
    folder: str | Path,
    engine: str = "auto",
    threads: int | None = None,
    *,
    precision: str | None = None,
    providers: Sequence[Any] | None = None,
    streams: int = 1,
) -> Predictor:
    """Load an artifact, its files checked, onto an engine. Needs neither torch nor transformers.

    `engine="auto"` takes what `tersely tune` found to be the fastest here, else the best engine for the CPU class that
    is installed. `providers` go to ONNX Runtime, which they choose too. `precision="bf16"` runs an FP32 graph,
    or the float parts of an INT8 one, in bf16 where engine and CPU can. `streams`: how many threads of yours may call
    it and be answered at once, each with `threads` of the engine's.

    `hub:owner/name`, or `hub:owner/name@revision` for a branch, a tag or a commit, is an artifact on the Hugging Face
    Hub: it is downloaded once into the user's cache and checked as any folder is (`pip install huggingface-hub`).

    >>> from tersely import runtime
    >>> runtime.load("no/such/folder")
    Traceback (most recent call last):
    tersely.errors.UserError: no/such/folder: There is no such folder. Check the path.
    """
    opened = artifacts.read(local_folder(folder))
    if engine == "auto" and providers is not None:
        engine = engines.with_providers()
    graph, name = choose(opened, engine, threads, precision)
    place, precision = opened.path(graph.path), precision or graph.precision
    runner = engines.load(name, place, threads=threads, precision=precision, providers=providers, streams=streams)
    return Predictor(from_json(opened.manifest.task), open_encoder(opened), runner)


@dataclass(frozen=True)
class Predictor:
    """Answers texts, pairs, word lists or questions.

    `batch_size` and `max_batch_tokens` bound a batch; answers do not depend on either.
    """

    task: Task
    encoder: Encoder
    engine: Engine
    batch_size: int = 16
    max_batch_tokens: int = MAX_BATCH_TOKENS

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_batch_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"The '{name}' option must be at least 1. Got {getattr(self, name)}.")

    def predict(self, inputs: Any, *, batch_size: int | None = None) -> list[Any]:
        """One answer for each input; a single input (a text, a mapping, a tuple) gives a list of one.

        Lists are many inputs, tuples are pairs: `predict(("question", "context"))` asks one question.
        """
        if isinstance(inputs, (str, tuple, Mapping)):
            inputs = [inputs]
        predictor = self if batch_size is None else self.with_batch_size(batch_size)
        return predictor.answers(self.task.examples(_listed(inputs)))

    def with_batch_size(self, batch_size: int) -> Predictor:
        """The same with other batches."""
        return replace(self, batch_size=batch_size)

    def answers(self, examples: Sequence[Any]) -> list[Any]:
        """Answers to examples that are read already."""
        features = self.task.features(examples, self.encoder)
        return self.task.decode(examples, features, self.run(features))

    def run(
        self, features: Sequence[Feature], progress: Callable[[int], None] | None = None
    ) -> list[NDArray[np.float32]]:
        """Logits of every feature."""
        return run(
            self.engine,
            features,
            self.encoder.pad_id,
            batch_size=self.batch_size,
            max_batch_tokens=self.max_batch_tokens,
            progress=progress,
        )


def run(
    engine: Engine,
    features: Sequence[Feature],
    pad_id: int,
    *,
    batch_size: int = 16,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
    progress: Callable[[int], None] | None = None,
) -> list[NDArray[np.float32]]:
    """Logits of every feature, without its padding, in the order given.

    [labels] for models that answer once a row, [length, labels] for those that answer once a token, and with two
    outputs (start, end) [length, 2].
    """
    results: list[NDArray[np.float32] | None] = [None] * len(features)
    for chosen in cut([len(feature) for feature in features], batch_size, max_batch_tokens):
        outputs = engine.run(pad([features[i] for i in chosen], pad_id))
        logits = outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
        for row, i in enumerate(chosen):
            # Copied where it is a slice, so that one short row does not keep its whole padded batch in memory.
            results[i] = logits[row] if logits.ndim == 2 else logits[row, : len(features[i])].copy()
        if progress is not None:
            progress(len(chosen))
    return [result for result in results if result is not None]


def cut(lengths: Sequence[int], batch_size: int, max_batch_tokens: int) -> Iterator[list[int]]:
    """Batches of indices, longest first: memory peaks at once, and neighbours need little padding.

    >>> list(cut([3, 9, 4, 8], batch_size=2, max_batch_tokens=16))
    [[1], [3, 2], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        size = max(1, min(batch_size, max_batch_tokens // longest))
        yield order[start : start + size]
        start += size


def pad(features: Sequence[Feature], pad_id: int, length: int = 0) -> Batch:
    """`input_ids`, `attention_mask`, `token_type_ids` [rows, longest, or `length`], and what else the features have."""
    shape = (len(features), max(length, *(len(feature) for feature in features)))
    input_ids = np.full(shape, pad_id, np.int64)
    attention_mask, token_type_ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, feature in enumerate(features):
        input_ids[row, : len(feature)] = feature.input_ids
        attention_mask[row, : len(feature)] = feature.more.get("attention_mask", 1)
        token_type_ids[row, : len(feature)] = feature.token_type_ids
    batch = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
    return {**batch, **{name: _stack(features, name, shape[1]) for name in features[0].more if name not in batch}}


def _stack(features: Sequence[Feature], name: str, longest: int) -> NDArray[Any]:
    """One of the further inputs; what has an entry for each token is filled up with zeros."""
    rows = [np.asarray(feature.more[name]) for feature in features]
    if all(row.ndim and len(row) == len(feature) for row, feature in zip(rows, features, strict=True)):
        rows = [np.pad(row, [(0, longest - len(row)), *[(0, 0)] * (row.ndim - 1)]) for row in rows]
    return np.stack(rows)


def local_folder(folder: str | Path) -> str | Path:
    """Give the folder of an address on the Hub, downloaded if need be; any other path comes back as it is.

    >>> local_folder("smaller/best")
    'smaller/best'
    """
    text = folder.as_posix() if isinstance(folder, Path) else folder
    if not str(text).startswith(HUB):
        return folder
    from .hub import fetched, parse

    return str(fetched(parse(text)))


def open_encoder(opened: Artifact) -> Encoder:
    """Read the artifact's tokenizer; a live model may have come without. One that is there must be listed."""
    if "tokenizer.json" not in opened.manifest.files and not (opened.folder / "tokenizer.json").exists():
        config = json.loads(opened.path("config.json").read_text(encoding="utf-8"))
        return NoTokenizer(opened.manifest.pad_token_id, int(config.get("vocab_size") or 1))
    return Encoder.from_file(opened.path("tokenizer.json"), opened.manifest.pad_token_id)


def _listed(inputs: Iterable[Any]) -> list[Any]:
    try:
        return list(inputs)
    except TypeError:
        raise UserError(f"The inputs must be a text or a list of inputs. Got {type(inputs).__name__}.") from None
