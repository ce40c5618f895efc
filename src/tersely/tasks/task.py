"""`Task`: rows to features, logits to answers, answers to a score. NumPy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Rows
from ..errors import UserError
from .encoder import Encoder
from .facts import Facts
from .metrics import Metric
from .wire import Wire

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Columns:
    """Which column holds what, where the usual names do not fit (None: find it)."""

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    words: str | None = None
    tags: str | None = None
    question: str | None = None
    context: str | None = None
    answers: str | None = None


@dataclass(frozen=True)
class Feature:
    """One sequence for the model: a row, or a window of one. No padding.

    `input_ids`, `token_type_ids` [length]; `example` is the index of the row that it belongs to; `alignment` is
    the task's own note of where the pieces come from. `more`: inputs beside the usual ones by name, those with one
    entry a piece [length, …] or of any other shape; an `attention_mask` among them counts in the place of ones.
    """

    example: int
    input_ids: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    alignment: Any = None
    more: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.input_ids)


class Task(Protocol):
    """What a task must offer. Makers are frozen dataclasses whose fields are its settings.

    An *example* is a row read and checked; its `gold` is None where the row carries no label. An *answer* is what
    the user gets for a row; `as_json()` gives it in plain types.
    """

    @property
    def name(self) -> str:
        """What the task is called."""

    @property
    def facts(self) -> Facts:
        """What is known of the task before there is a model for it."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs."""

    @property
    def max_seq_length(self) -> int:
        """How many pieces the model is given at most."""

    @property
    def metric(self) -> str:
        """Name of the number that chooses."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics that this task knows, by name."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the model's labels in the order of its logits."""

    @property
    def centred_axis(self) -> int | None:
        """The axis of a feature's logits whose common shift means nothing (None: every shift does)."""

    @property
    def answer_columns(self) -> Mapping[str, Any]:
        """What an answer's `as_json()` holds, by name: str, int, float, [form], {name: form}; None is any JSON."""

    @property
    def wire(self) -> Wire:
        """How it looks to the clients of a server."""

    def read(self, rows: Rows, columns: Columns, labelled: bool) -> list[Any]:
        """Check rows and turn them into examples; `labelled`: every row must carry its gold (else none is read)."""

    def examples(self, inputs: Any) -> list[Any]:
        """Turn what a caller of `predict` passes into examples without gold."""

    def features(self, examples: Sequence[Any], encoder: Encoder) -> list[Feature]:
        """Tokenize; an example gives one feature or, if it is long, several windows."""

    def targets(self, example: Any, feature: Feature) -> Mapping[str, Any]:
        """Labels of one feature, by the names that the model's forward takes."""

    def decode(self, examples: Sequence[Any], features: Sequence[Feature], logits: Sequence[Logits]) -> list[Any]:
        """Logits of every feature ([labels], [length, labels] or [length, 2]) to one answer per example."""

    def statistics(self, metric: str, examples: Sequence[Any], answers: Sequence[Any]) -> NDArray[np.float64]:
        """Per-row statistics [rows, k] of a metric, to be summed and handed to `Metric.value`."""

    def agreement(self, answers: Sequence[Any], others: Sequence[Any]) -> NDArray[np.float64]:
        """Per row (equal parts, parts) [rows, 2]: how far two systems say the same."""


class InputError(UserError):
    """An input of `predict` is not what the task takes: its number, and what is wrong with it.

    >>> print(InputError(2, "must be a text. Got int."))
    Input 2 must be a text. Got int.
    """

    def __init__(self, index: int, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"Input {index} {problem}", hint=hint)
        self.index, self.problem = index, problem
        self.args = (index, problem)  # what a copy in another process is made with


def softmax(logits: NDArray[Any], axis: int = -1) -> NDArray[np.float64]:
    """Exponentiate and normalise, in double precision."""
    shifted = np.asarray(logits, np.float64) - np.max(logits, axis=axis, keepdims=True)
    exponents = np.exp(shifted)
    return np.asarray(exponents / exponents.sum(axis=axis, keepdims=True))


def text_of(rows: Rows, index: int, column: str) -> str:
    """Read a text; None, numbers and the like are refused with their place."""
    value = rows.records[index].get(column)
    if not isinstance(value, str):
        raise rows.error(
            index,
            f"Column '{column}' must hold text. Got {'nothing' if value is None else type(value).__name__}.",
            hint="Fill in or remove the row.",
        )
    return value
