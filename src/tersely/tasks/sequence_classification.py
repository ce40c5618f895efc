"""Classify a text or a pair of texts: one label, several labels, or a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from ..data.labels import label_text
from ..data.rows import Rows
from ..errors import UserError, nearest
from . import metrics
from .encoder import Encoder, Feature, Logits, softmax
from .metrics import Metric
from .task import Columns, Facts, Input, InputError, Loss
from .wire import Wire
from .wire.sequence_classification import LabelsWire, LabelWire, NumberWire

SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
TABLES: Mapping[str, Mapping[str, Metric]] = {
    SINGLE: metrics.CLASSIFICATION,
    MULTI: metrics.MULTI_LABEL,
    REGRESSION: metrics.REGRESSION,
}
PRIMARY = {SINGLE: "accuracy", MULTI: "micro_f1", REGRESSION: "pearson"}
WIRES: Mapping[str, Callable[[tuple[str, ...]], Wire]] = {SINGLE: LabelWire, MULTI: LabelsWire, REGRESSION: NumberWire}

TEXT = ("text", "sentence", "sentence1", "#1 String", "premise", "question1", "question", "query", "content", "review")
PAIR = ("text_pair", "sentence2", "#2 String", "hypothesis", "question2", "title", "passage")
LABEL = ("label", "labels", "Quality", "gold_label", "score", "class", "category", "target", "is_duplicate")


@dataclass(frozen=True)
class TextExample:
    """A text, the text it is paired with, and its gold: a label's index, a number, or a 0/1 vector."""

    text: str
    text_pair: str | None = None
    gold: int | float | tuple[int, ...] | None = None


@dataclass(frozen=True)
class Classified:
    """The label (or labels, or number) with its probability, and the probability of every label."""

    value: int | float | tuple[int, ...]
    label: str | tuple[str, ...] | float
    score: float | None
    scores: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """Give plain types."""
        label = list(self.label) if isinstance(self.label, tuple) else self.label
        if isinstance(self.value, float):
            return {"value": self.value}
        rounded = {name: round(value, 6) for name, value in self.scores.items()}
        score = {} if self.score is None else {"score": round(self.score, 6)}
        return {"label": label, **score, "scores": rounded}

    def in_words(self) -> str:
        """The number, the labels, or the label with its probability."""
        if isinstance(self.value, float):
            return f"{self.value:.4g}"
        words = self.label if isinstance(self.label, str) else ", ".join(self.label) or "no label"  # type: ignore[arg-type]
        return words if self.score is None else f"{words} ({self.score:.2f})"


def _defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A head with one output gives a number; each kind of answer has a metric of its own."""
    found = dict(settings)
    found.setdefault("problem", REGRESSION if len(found["labels"]) == 1 else SINGLE)
    if found["problem"] in PRIMARY:
        found.setdefault("metric", PRIMARY[found["problem"]])
    return found


@dataclass(frozen=True)
class SequenceClassification:
    """One answer for a text or a pair."""

    name: ClassVar[str] = "sequence_classification"
    outputs: ClassVar[tuple[str, ...]] = ("logits",)
    facts: ClassVar[Facts] = Facts(
        call='model.predict(["a text", ("or", "a pair of texts")])',
        gives="labels with scores",
        answers_for="row",
        head="SequenceClassification",
        kinds={"sequence_classification": SINGLE, "multi_label_classification": MULTI, "regression": REGRESSION},
        inputs=(Input("text"), Input("text_pair", optional=True)),
        defaults=_defaults,
        pipeline_tag="text-classification",
    )

    labels: tuple[str, ...]
    problem: str = SINGLE
    max_seq_length: int = 128
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        if self.problem not in TABLES:
            raise UserError(f"There is no kind of answer '{self.problem}'.", hint=nearest(self.problem, TABLES))
        count = len(self.labels)
        if (count != 1) if self.problem == REGRESSION else (count < (2 if self.problem == SINGLE else 1)):
            needed = {REGRESSION: "one output", MULTI: "at least one", SINGLE: "at least two"}[self.problem]
            raise UserError(f"The model's head has {count} outputs; {self.problem} needs {needed}.")

    @property
    def loss(self) -> Loss:
        """That of this kind of answer."""
        return cast(Loss, self.problem)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Metrics of this kind of answer; those of two classes only where there are two."""
        table = TABLES[self.problem]
        two_only = {"f1", "acc_and_f1"} if self.problem == SINGLE and len(self.labels) != 2 else set()
        return {name: metric for name, metric in table.items() if name not in two_only}

    @property
    def centred_axis(self) -> int | None:
        """A common shift of all logits changes no softmax."""
        return -1 if self.problem == SINGLE else None

    @property
    def answer_columns(self) -> Mapping[str, Any]:
        """The label with its score, the labels, or the number; and the score of every label."""
        scores = {"scores": dict.fromkeys(self.labels, float)}
        if self.problem == REGRESSION:
            return {"value": float}
        return {"label": [str], **scores} if self.problem == MULTI else {"label": str, "score": float, **scores}

    @property
    def wire(self) -> Wire:
        """That of this kind of answer."""
        return WIRES[self.problem](self.labels)

    def read(self, rows: Rows, columns: Columns, labelled: bool) -> list[TextExample]:
        """Take text, second text and label from the usual columns or those named."""
        text = rows.column("text_column", columns.text, TEXT)
        if text is None:
            raise rows.lacks("There is no text column.", hint="Name it with --text_column.")
        pair = rows.column("text_pair_column", columns.text_pair, [name for name in PAIR if name != text])
        label = rows.column("label_column", columns.label, [name for name in LABEL if name not in (text, pair)])
        if labelled and label is None:
            raise rows.lacks("There is no label column.", hint="Name it with --label_column.")
        examples = []
        for index, record in enumerate(rows):
            value = record.get(label) if label else None
            gold = self._gold(rows, index, value) if labelled else None
            second = rows.text(index, pair) if pair else None
            examples.append(TextExample(rows.text(index, text), second, gold))
        return examples

    def examples(self, inputs: Any) -> list[TextExample]:
        """Take texts, (text, text) pairs, or mappings with `text` and `text_pair`."""
        return [_example(item, index) for index, item in enumerate(inputs)]

    def features(self, examples: Sequence[TextExample], encoder: Encoder) -> list[Feature]:
        """One feature each, cut to the longest length allowed."""
        features: list[Feature | None] = [None] * len(examples)
        for paired in (False, True):
            chosen = [i for i, example in enumerate(examples) if (example.text_pair is not None) == paired]
            if not chosen:
                continue
            seconds = [examples[i].text_pair or "" for i in chosen] if paired else None
            encodings = encoder.texts([examples[i].text for i in chosen], seconds, self.max_seq_length)
            for i, encoding in zip(chosen, encodings, strict=True):
                features[i] = Feature(i, np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64))
        return [feature for feature in features if feature is not None]

    def targets(self, example: TextExample, feature: Feature) -> Mapping[str, Any]:
        """`labels`: an index, a float, or a float vector."""
        dtype = np.int64 if self.problem == SINGLE else np.float32
        return {"labels": np.array(example.gold, dtype)}

    def decode(
        self, examples: Sequence[TextExample], features: Sequence[Feature], logits: Sequence[Logits]
    ) -> list[Classified]:
        """The likeliest label, the labels above one half, or the number."""
        return [self._answer(row) for row in logits]

    def statistics(
        self, metric: str, examples: Sequence[TextExample], answers: Sequence[Classified]
    ) -> NDArray[np.float64]:
        """Statistics of label indices, vectors or numbers."""
        golds = np.array([example.gold for example in examples])
        return self.metrics[metric].rows(golds, np.array([answer.value for answer in answers]))

    def agreement(self, answers: Sequence[Classified], others: Sequence[Classified]) -> NDArray[np.float64]:
        """Rows with the same label; numbers count as the same within a hundredth."""
        if self.problem == REGRESSION:
            pairs = zip(answers, others, strict=True)
            equal = [abs(float(a.value) - float(b.value)) <= 0.01 for a, b in pairs]  # type: ignore[arg-type]
        else:
            equal = [a.value == b.value for a, b in zip(answers, others, strict=True)]
        return np.array([[float(same), 1.0] for same in equal])

    def rightness(self, examples: Sequence[TextExample], answers: Sequence[Classified]) -> NDArray[np.float64]:
        """Right labels of each row; of a number minus its error."""
        golds, values = (np.array([row.gold for row in examples]), np.array([answer.value for answer in answers]))
        if self.problem == REGRESSION:
            return np.asarray(-abs(values - golds), np.float64)
        return np.asarray((golds == values).reshape(len(golds), -1).sum(axis=1), np.float64)

    def _answer(self, logits: Logits) -> Classified:
        if self.problem == REGRESSION:
            return Classified(float(logits[0]), float(logits[0]), None, {})
        if self.problem == MULTI:
            chances = 0.5 * (1.0 + np.tanh(0.5 * np.asarray(logits, np.float64)))  # the sigmoid, without overflow
            chosen = tuple(int(chance > 0.5) for chance in chances)
            names = tuple(name for name, on in zip(self.labels, chosen, strict=True) if on)
            return Classified(chosen, names, None, dict(zip(self.labels, chances.tolist(), strict=True)))
        chances = softmax(logits)
        best, scores = int(np.argmax(logits)), dict(zip(self.labels, chances.tolist(), strict=True))
        return Classified(best, self.labels[best], float(chances[best]), scores)

    def _gold(self, rows: Rows, index: int, value: Any) -> int | float | tuple[int, ...]:
        if self.problem == REGRESSION:
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise rows.error(index, f"The label must be a number. Got {value!r}.") from None
            if not np.isfinite(number):
                raise rows.error(index, f"The label must be a finite number. Got {value!r}.")
            return number
        if self.problem == MULTI:
            parts = label_list(value)
            if parts is None:
                raise rows.error(index, f"The labels must be a list or a text with commas. Got {value!r}.")
            on = {self._index(rows, index, part) for part in parts}
            return tuple(int(i in on) for i in range(len(self.labels)))
        if value is None or isinstance(value, (list, dict)):
            raise rows.error(index, f"The label must be one value. Got {'nothing' if value is None else repr(value)}.")
        return self._index(rows, index, value)

    def _index(self, rows: Rows, index: int, value: Any) -> int:
        name = label_text(value).strip()
        if name in self.labels:
            return self.labels.index(name)
        # A model saved without names calls its labels LABEL_0, LABEL_1 …: there a number means the position.
        generic = f"LABEL_{name}"
        if generic in self.labels:
            return self.labels.index(generic)
        shown = ", ".join(self.labels[:12]) + (" …" if len(self.labels) > 12 else "")
        raise rows.error(index, f"The label '{name}' is not one of the model's {len(self.labels)}: {shown}.")


def label_list(value: Any) -> list[Any] | None:
    """Read several labels: a list, or text with commas ('' is none)."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, (list, tuple)) else None


def _example(item: Any, index: int) -> TextExample:
    if isinstance(item, str):
        return TextExample(item)
    parts = item
    if isinstance(item, Mapping):
        parts = (item.get("text"), item["text_pair"]) if item.get("text_pair") is not None else (item.get("text"),)
    if isinstance(parts, (tuple, list)) and 1 <= len(parts) <= 2 and all(isinstance(part, str) for part in parts):
        return TextExample(*parts)
    what = "must be a text, a pair of texts, or a mapping with 'text' and 'text_pair'."
    raise InputError(index, f"{what} Got {type(item).__name__}.")
