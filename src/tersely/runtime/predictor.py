"""`Predictor`: a task, a tokenizer and an engine that answer together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engines.engine import Engine
from ..errors import UserError
from ..tasks import Encoder, Feature, Task
from . import batches


@dataclass(frozen=True)
class Predictor:
    """Answers texts, pairs, word lists or questions.

    `batch_size` and `max_batch_tokens` bound a batch; answers do not depend on either.
    """

    task: Task
    encoder: Encoder
    engine: Engine
    batch_size: int = 16
    max_batch_tokens: int = batches.MAX_BATCH_TOKENS

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
        return batches.run(
            self.engine,
            features,
            self.encoder.pad_id,
            batch_size=self.batch_size,
            max_batch_tokens=self.max_batch_tokens,
            progress=progress,
        )


def _listed(inputs: Iterable[Any]) -> list[Any]:
    try:
        return list(inputs)
    except TypeError:
        raise UserError(f"The inputs must be a text or a list of inputs. Got {type(inputs).__name__}.") from None
