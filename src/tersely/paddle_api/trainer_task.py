"""`LiveTask`: a task over a trainer's rows, which came tokenized; what ships is the task that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Rows
from ..tasks import Columns, Encoder, Feature, Task
from ..tasks.facts import Facts
from ..tasks.metrics import Metric
from ..tasks.own import feature_of
from ..tasks.sequence_classification import MULTI, REGRESSION
from ..tasks.task import Logits
from ..tasks.token_classification import IGNORED
from ..tasks.wire import Wire
from .live_questions import LiveQuestion, LiveQuestions
from .live_rows import ITEM, Form, LiveData, LiveExample
from .spans import SPANS, Span, best_span


@dataclass(frozen=True)
class Tags:
    """Tags of the positions that count: those with a label, or all where there are none."""

    tags: tuple[str, ...]


@dataclass(frozen=True)
class LiveTask:
    """Answers and scores as the shipped task does, from logits and the labels beside the inputs.

    Token classification: the positions whose label is not -100. Question answering: SQuAD's score where the questions
    came with texts, else spans of tokens, each row a question of its own. `own_metric`: the user's own score in the
    place of the task's. `sample`: rows for those who need some and have none.
    """

    shipped: Task
    form: Form
    data: Mapping[str, LiveData] = field(repr=False)
    sample: tuple[LiveExample, ...] = field(repr=False, default=())
    own_metric: Metric | None = None

    @property
    def name(self) -> str:
        """The shipped task's."""
        return self.shipped.name

    @property
    def facts(self) -> Facts:
        """The shipped task's."""
        return self.shipped.facts

    @property
    def problem(self) -> str | None:
        """The kind of classification; None for other tasks."""
        return getattr(self.shipped, "problem", None)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs."""
        return self.shipped.outputs

    @property
    def max_seq_length(self) -> int:
        """How many pieces the model is given at most."""
        return self.shipped.max_seq_length

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the model's labels in the order of its logits."""
        return self.shipped.labels

    @property
    def centred_axis(self) -> int | None:
        """The axis whose common shift means nothing."""
        return self.shipped.centred_axis

    @property
    def metric(self) -> str:
        """Name of the number that chooses."""
        return self.shipped.metric if self.own_metric is None else self.own_metric.name

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The shipped task's, over spans of pieces for questions; or the user's own."""
        if self.own_metric is not None:
            return {self.metric: self.own_metric}
        pieces_only = self.facts.answers_for == "span" and not self.has_texts
        return SPANS if pieces_only else self.shipped.metrics

    @property
    def has_texts(self) -> bool:
        """Whether the questions to be scored came with their texts."""
        return isinstance(self.data.get("eval_dataset"), LiveQuestions)

    @property
    def answer_columns(self) -> Mapping[str, Any]:
        """The shipped task's."""
        return self.shipped.answer_columns

    @property
    def wire(self) -> Wire:
        """The shipped task's."""
        return self.shipped.wire

    def read(self, rows: Rows, columns: Columns, labelled: bool) -> list[LiveExample]:
        """Rows of one of the datasets, with their labels where these are needed."""
        numbers = [record[ITEM] for record in rows]
        examples = self.data[rows.source].examples(numbers, self.form)
        if not labelled:
            return examples
        return [self._with_gold(rows, index, one) for index, one in enumerate(examples)]

    def examples(self, inputs: Any) -> list[LiveExample]:
        """As many of the sample's rows as there are inputs: texts are not what this task reads."""
        return list(self.sample[: len(inputs)])

    def features(self, examples: Sequence[LiveExample], encoder: Encoder) -> list[Feature]:
        """As the collator made them: one each, or one for each window of a question."""
        found: list[Feature] = []
        for index, one in enumerate(examples):
            found += one.features(index) if isinstance(one, LiveQuestion) else [feature_of(index, one.inputs)]
        return found

    def targets(self, example: LiveExample, feature: Feature) -> Mapping[str, Any]:
        """Labels by the names that they have in the dataset."""
        return example.targets

    def decode(
        self, examples: Sequence[LiveExample], features: Sequence[Feature], logits: Sequence[Logits]
    ) -> list[Any]:
        """Labels, tags of the positions that count, spans of pieces, or outputs as they are."""
        if self.facts.answers_for == "span" and not any(isinstance(one, LiveQuestion) for one in examples):
            longest = cast(Any, self.shipped).max_answer_length
            return [best_span(rows, longest) for rows in logits]
        if self.facts.answers_for == "tokens":
            names = self.shipped.labels
            chosen = [rows[_counting(one, len(rows))].argmax(-1) for one, rows in zip(examples, logits, strict=True)]
            return [Tags(tuple(names[int(i)] for i in row)) for row in chosen]
        return self.shipped.decode(examples, features, logits)

    def statistics(self, metric: str, examples: Sequence[LiveExample], answers: Sequence[Any]) -> NDArray[np.float64]:
        """Per-row statistics of the shipped task's metrics."""
        if self.facts.answers_for == "row" or self.has_texts:
            return self.shipped.statistics(metric, examples, answers)  # of examples only the gold
        golds = [example.gold for example in examples]
        if self.facts.answers_for == "tokens":
            answers = [answer.tags for answer in answers]
        return self.metrics[metric].rows(golds, answers)

    def agreement(self, answers: Sequence[Any], others: Sequence[Any]) -> NDArray[np.float64]:
        """How far two systems say the same."""
        if answers and isinstance(answers[0], Span):
            return np.array([[float(one == other), 1.0] for one, other in zip(answers, others, strict=True)])
        return self.shipped.agreement(answers, others)

    def _with_gold(self, rows: Rows, index: int, one: LiveExample) -> LiveExample:
        if self.own_metric is not None and rows.source == "eval_dataset":
            return replace(one, gold=True)  # labels mean what the user's own score says
        if isinstance(one, LiveQuestion):
            if one.gold is None:
                raise rows.error(index, "The question has no answers, so that it cannot be scored.")
            return one
        missing = [name for name in self.form.labels if name not in one.targets]
        if missing:
            what = f"The row has no '{missing[0]}'. It has: {', '.join(one.inputs)}."
            raise rows.error(index, what, hint="Where labels have other names, say so with 'label_names'.")
        return LiveExample(one.number, one.inputs, one.targets, self._gold(rows, index, one))

    def _gold(self, rows: Rows, index: int, one: LiveExample) -> Any:
        values = [one.targets[name] for name in self.form.labels if name in one.targets]
        if self.facts.answers_for == "own":
            return True
        if self.facts.answers_for == "span":
            return Span(*(int(value) for value in values))
        (label,) = values
        if self.facts.answers_for == "tokens":
            counted = [int(i) for i in label[_counting(one, len(label))]]
            return tuple(self.labels[self._known(rows, index, i)] for i in counted)
        if self.problem == REGRESSION:
            return float(np.ravel(label)[0])
        if self.problem == MULTI:
            return tuple(int(value > 0.5) for value in label)
        return self._known(rows, index, int(np.ravel(label)[0]))

    def _known(self, rows: Rows, index: int, label: int) -> int:
        if not 0 <= label < len(self.labels):
            what = f"The label {label} is not one of the model's {len(self.labels)} (0 to {len(self.labels) - 1})."
            raise rows.error(index, what)
        return label


def _counting(one: LiveExample, length: int) -> NDArray[np.int64]:
    label = next(iter(one.targets.values()), None)
    return np.arange(length) if label is None else np.flatnonzero(label != IGNORED)
