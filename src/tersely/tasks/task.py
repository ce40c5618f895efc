"""`Task`: rows to features, logits to answers, answers to a score. NumPy only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Rows
from ..errors import UserError
from .encoder import Encoder, Feature, Logits
from .metrics import Metric
from .wire import Wire

IGNORED = -100
"""The label of a token that no loss and no score counts, as transformers' models have it."""
AnswersFor = Literal["row", "tokens", "span", "own"]
"""What a model answers for. A row: logits [rows, labels]; its tokens: [rows, length, labels]; a span: starts and ends,
[rows, length] each; what only its owner knows.
"""
Loss = Literal["single_label_classification", "multi_label_classification", "regression", "tokens", "span", "own"]
"""What a model learns for a row: the likeliest of its labels, each label by itself, a number; a label for each token; a
start and an end; what only its owner knows.
"""


@dataclass(frozen=True)
class Input:
    """A text of every row, by the name that requests have for it.

    `words`: the parameter of a request by which rows come as lists of words in its place.
    """

    name: str
    optional: bool = False
    words: str | None = None


@dataclass(frozen=True)
class Facts:
    """A task's words for those who show it, what it reads, and which models are for it.

    `call` and `gives`: the line of Python that a model card shows, and what it gives. `answers_for`: see there.
    `head`: a class of transformers whose name ends with `For` and this is for the task (None: no class says so).
    `kinds`: what `--task` takes, each with the `problem` that it stands for (None: the task has no such setting).
    `targets`: the names of labels in a model's forward. `inputs`: the texts of a row; `task.examples` takes a row as a
    mapping, as a tuple of its texts, or as its first text where no other is needed. `defaults` fills in settings that
    follow from others. `pipeline_tag`: the Hub's name for the task (None: it has none). `note`: a paragraph for the
    card, filled in with the task's settings. `not_served`: why no server takes it ('': one does).
    """

    call: str
    gives: str
    answers_for: AnswersFor
    head: str | None = None
    kinds: Mapping[str, str | None] = field(default_factory=dict)
    targets: tuple[str, ...] = ("labels",)
    inputs: tuple[Input, ...] = ()
    defaults: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    pipeline_tag: str | None = None
    note: str = ""
    not_served: str = ""


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

    def of_texts(self) -> Columns:
        """Those that hold texts, without those of labels.

        >>> Columns(text="review", label="stars").of_texts() == Columns(text="review")
        True
        """
        return replace(self, label=None, tags=None, answers=None)


class Task(Protocol):
    """What a task must offer. Makers are frozen dataclasses whose fields are its settings.

    An *example* is a row read and checked; its `gold` is None where the row carries no label. An *answer* is what
    the user gets for a row; `as_json()` gives it in plain types, `in_words()` in one line.
    """

    @property
    def name(self) -> str:
        """What the task is called."""

    @property
    def facts(self) -> Facts:
        """What is known of the task before there is a model for it."""

    @property
    def loss(self) -> Loss:
        """What its models learn by."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs."""

    @property
    def max_seq_length(self) -> int:
        """How many tokens the model is given at most."""

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
        """Per-row statistics [rows, k] of a metric, to be summed and passed to `Metric.value`."""

    def agreement(self, answers: Sequence[Any], others: Sequence[Any]) -> NDArray[np.float64]:
        """Per row (equal parts, parts) [rows, 2]: how far two systems say the same."""

    def rightness(self, examples: Sequence[Any], answers: Sequence[Any]) -> NDArray[np.float64]:
        """How right each answer to a labelled row is [rows]: the more the better."""


class InputError(UserError):
    """An input of `predict` is not what the task takes: its number, and what is wrong with it.

    >>> print(InputError(2, "must be a text. Got int."))
    Input 2 must be a text. Got int.
    """

    def __init__(self, index: int, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"Input {index} {problem}", hint=hint)
        self.index, self.problem = index, problem
        self.args = (index, problem)  # what a copy in another process is made with
