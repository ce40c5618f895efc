"""`TrainerTask`: a task over a trainer's rows, which came tokenized; what ships is the task that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Rows
from ..tasks import Columns, Encoder, Feature, Task
from ..tasks.encoder import Logits
from ..tasks.metrics import Metric
from ..tasks.metrics.metric import counted, mean, table
from ..tasks.sequence_classification import MULTI, REGRESSION
from ..tasks.task import IGNORED
from .datasets import ITEM, BatchForm, TrainerDataset, TrainerRow


@dataclass(frozen=True)
class Tags:
    """Tags of the positions that count: those with a label, or all where there are none."""

    tags: tuple[str, ...]


class Span(NamedTuple):
    """First and last token; (0, 0) is no answer in this window."""

    start: int
    end: int

    def in_words(self) -> str:
        """Both places."""
        return f"{self.start} to {self.end}"


def best_span(logits: NDArray[Any], longest: int) -> Span:
    """The start and end [length, 2] with the largest sum, at most so many tokens long.

    >>> best_span(np.array([[0, 0], [3, 1], [0, 3], [5, 0]]), 2)
    Span(start=1, end=2)
    """
    sums = np.asarray(logits[:, 0], np.float64)[:, None] + np.asarray(logits[:, 1], np.float64)[None, :]
    places = np.arange(len(logits))
    size = places[None, :] - places[:, None]
    sums[(size < 0) | (size >= longest)] = -np.inf
    return Span(*(int(i) for i in np.unravel_index(int(sums.argmax()), sums.shape)))


def _equal(golds: Any, answers: Any) -> NDArray[np.float64]:
    return counted([tuple(gold) == tuple(answer) for gold, answer in zip(golds, answers, strict=True)])


def _overlap(golds: Any, answers: Any) -> NDArray[np.float64]:
    return counted([_f1(Span(*gold), Span(*answer)) for gold, answer in zip(golds, answers, strict=True)])


def _f1(gold: Span, answer: Span) -> float:
    same = max(0, min(gold.end, answer.end) - max(gold.start, answer.start) + 1)
    return 2 * same / (gold.end - gold.start + answer.end - answer.start + 2)


SPANS = table(Metric("f1", _overlap, mean), Metric("em", _equal, mean))
"""For questions whose texts are not at hand: F1 and exact match over positions."""


def _of_shipped(name: str) -> Any:
    return property(lambda task: getattr(task.shipped, name), doc="The shipped task's.")


@dataclass(frozen=True)
class TrainerTask:
    """Answers and scores as the shipped task does, from logits and the labels beside the inputs.

    Token classification: the positions whose label is not -100. Question answering: SQuAD's score where the questions
    came with texts, else spans of tokens, each row a question of its own. `own_metric`: the user's own score in the
    place of the task's. `sample`: rows for those who need some and have none.
    """

    shipped: Task
    form: BatchForm
    data: Mapping[str, TrainerDataset] = field(repr=False)
    sample: tuple[TrainerRow, ...] = field(repr=False, default=())
    own_metric: Metric | None = None

    name = _of_shipped("name")
    facts = _of_shipped("facts")
    loss = _of_shipped("loss")
    outputs = _of_shipped("outputs")
    max_seq_length = _of_shipped("max_seq_length")
    labels = _of_shipped("labels")
    centred_axis = _of_shipped("centred_axis")
    answer_columns = _of_shipped("answer_columns")
    wire = _of_shipped("wire")

    @property
    def metric(self) -> str:
        """Name of the number that chooses."""
        return self.shipped.metric if self.own_metric is None else self.own_metric.name

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The shipped task's, over spans of tokens for questions; or the user's own."""
        if self.own_metric is not None:
            return {self.metric: self.own_metric}
        return SPANS if self.loss == "span" and not self.has_texts else self.shipped.metrics

    @property
    def has_texts(self) -> bool:
        """Whether the questions to be scored came with their texts."""
        return "eval_dataset" in self.data and self.data["eval_dataset"].has_texts

    def read(self, rows: Rows, columns: Columns, labelled: bool) -> list[TrainerRow]:
        """Rows of one of the datasets, with their labels where these are needed."""
        examples = self.data[rows.source].examples([record[ITEM] for record in rows], self.form)
        return [self._with_gold(rows, *row) for row in enumerate(examples)] if labelled else examples

    def examples(self, inputs: Any) -> list[TrainerRow]:
        """As many of the sample's rows as there are inputs: texts are not what this task reads."""
        return list(self.sample[: len(inputs)])

    def features(self, examples: Sequence[TrainerRow], encoder: Encoder) -> list[Feature]:
        """As the collator made them: one each, or one for each window of a question."""
        return [feature for index, row in enumerate(examples) for feature in row.features(index)]

    def targets(self, example: TrainerRow, feature: Feature) -> Mapping[str, Any]:
        """Labels by the names that they have in the dataset."""
        return example.targets

    def decode(
        self, examples: Sequence[TrainerRow], features: Sequence[Feature], logits: Sequence[Logits]
    ) -> list[Any]:
        """Labels, tags of the positions that count, spans of tokens, or outputs as they are."""
        if self.loss == "span" and not any(row.has_texts for row in examples):
            return [best_span(rows, cast(Any, self.shipped).max_answer_length) for rows in logits]
        if self.loss == "tokens":
            chosen = [rows[_counting(row, len(rows))].argmax(-1) for row, rows in zip(examples, logits, strict=True)]
            return [Tags(tuple(self.labels[int(i)] for i in row)) for row in chosen]
        return self.shipped.decode(examples, features, logits)

    def statistics(self, metric: str, examples: Sequence[TrainerRow], answers: Sequence[Any]) -> NDArray[np.float64]:
        """Per-row statistics of the shipped task's metrics."""
        if self.loss == "span" and not self.has_texts:
            return SPANS[metric].rows([row.gold for row in examples], answers)
        return self.shipped.statistics(metric, examples, answers)  # of examples it reads only the gold

    def agreement(self, answers: Sequence[Any], others: Sequence[Any]) -> NDArray[np.float64]:
        """How far two systems say the same."""
        are_spans = answers and isinstance(answers[0], Span)
        return _equal(answers, others) if are_spans else self.shipped.agreement(answers, others)

    def rightness(self, examples: Sequence[TrainerRow], answers: Sequence[Any]) -> NDArray[np.float64]:
        """A span is right or wrong as a whole; other answers as the shipped task has it."""
        if answers and isinstance(answers[0], Span):
            return _equal([row.gold for row in examples], answers)[:, 0]
        return self.shipped.rightness(examples, answers)

    def _with_gold(self, rows: Rows, index: int, row: TrainerRow) -> TrainerRow:
        if self.own_metric is not None and rows.source == "eval_dataset":
            return replace(row, gold=True)  # labels mean what the user's own score says
        if row.has_texts:
            if row.gold is None:
                raise rows.error(index, "The question has no answers, so that it cannot be scored.")
            return row
        missing = [name for name in self.form.labels if name not in row.targets]
        if missing:
            what = f"The row has no '{missing[0]}'. It has: {', '.join(row.inputs)}."
            raise rows.error(index, what, hint="Where labels have other names, say so with 'label_names'.")
        return replace(row, gold=self._gold(rows, index, row))

    def _gold(self, rows: Rows, index: int, row: TrainerRow) -> Any:
        values = [row.targets[name] for name in self.form.labels]
        if self.loss == "own":
            return True
        if self.loss == "span":
            return Span(*(int(value) for value in values))
        (label,) = values
        if self.loss == "tokens":
            counted_labels = label[_counting(row, len(label))]
            return tuple(self.labels[self._known(rows, index, int(i))] for i in counted_labels)
        if self.loss == REGRESSION:
            return float(np.ravel(label)[0])
        if self.loss == MULTI:
            return tuple(int(value > 0.5) for value in label)
        return self._known(rows, index, int(np.ravel(label)[0]))

    def _known(self, rows: Rows, index: int, label: int) -> int:
        if not 0 <= label < len(self.labels):
            what = f"The label {label} is not one of the model's {len(self.labels)} (0 to {len(self.labels) - 1})."
            raise rows.error(index, what)
        return label


def _counting(row: TrainerRow, length: int) -> NDArray[np.int64]:
    label = next(iter(row.targets.values()), None)
    return np.arange(length) if label is None else np.flatnonzero(label != IGNORED)
