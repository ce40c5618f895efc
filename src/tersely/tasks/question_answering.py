"""Answer a question with a stretch of its context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Rows
from ..errors import UserError
from . import metrics
from .encoder import Encoder, Feature, Logits, softmax
from .metrics import Metric
from .task import Columns, Facts, Input, InputError, Loss
from .wire import Wire
from .wire.question_answering import AnswersWire


@dataclass(frozen=True)
class QuestionExample:
    """A question, its context, and the golds: (text, first character); `()` says that there is no answer."""

    question: str
    context: str
    gold: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True)
class Answered:
    """The best stretch with its offsets and its share of the probability of the n best; '' is no answer."""

    text: str
    start: int
    end: int
    score: float

    def as_json(self) -> dict[str, Any]:
        """Give plain types."""
        return {"answer": self.text, "start": self.start, "end": self.end, "score": round(self.score, 6)}

    def in_words(self) -> str:
        """The answer itself."""
        return self.text or "no answer"


@dataclass(frozen=True)
class QuestionAnswering:
    """Extractive answers; long contexts go through in windows that overlap (`doc_stride`)."""

    name: ClassVar[str] = "question_answering"
    loss: ClassVar[Loss] = "span"
    outputs: ClassVar[tuple[str, ...]] = ("start_logits", "end_logits")
    labels: ClassVar[tuple[str, ...]] = ()
    centred_axis: ClassVar[int] = 0  # a common shift of all starts (or ends) changes no choice
    answer_columns: ClassVar[Mapping[str, Any]] = {"answer": str, "start": int, "end": int, "score": float}
    wire: ClassVar[Wire] = AnswersWire()
    facts: ClassVar[Facts] = Facts(
        call='model.predict([("a question", "and the context that answers it")])',
        gives="answers with offsets and scores",
        answers_for="span",
        head="QuestionAnswering",
        kinds={"question_answering": None},
        targets=("start_positions", "end_positions"),
        inputs=(Input("question"), Input("context")),
        pipeline_tag="question-answering",
    )

    max_seq_length: int = 384
    doc_stride: int | None = None
    n_best_size: int = 20
    max_answer_length: int = 30
    max_query_length: int = 64
    null_score_diff_threshold: float = 0.0
    no_answer: bool = False
    answer_language: str = "auto"
    metric: str = "f1"

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """F1 and exact match in English; `statistics` takes the Chinese rule where the answers ask for it."""
        return metrics.CMRC if self.answer_language == "zh" else metrics.SQUAD

    def read(self, rows: Rows, columns: Columns, labelled: bool) -> list[QuestionExample]:
        """Take question, context and answers as SQuAD files have them."""
        question = rows.column("question_column", columns.question, ("question", "query"))
        context = rows.column("context_column", columns.context, ("context", "passage", "text"))
        answers = rows.column("answers_column", columns.answers, ("answers", "answer"))
        for name, column in (("question", question), ("context", context), ("answers", answers)):
            if column is None and (labelled or name != "answers"):
                names = f"There is no column of {name if name == 'answers' else name + 's'}."
                raise rows.lacks(names, hint=f"Name it with --{name}_column.")
        examples = []
        for index, record in enumerate(rows):
            golds = record.get(answers) if answers and labelled else None
            if labelled and golds is None:
                raise rows.error(index, "The question has no answers, so that it cannot be scored.")
            texts = rows.text(index, question or ""), rows.text(index, context or "")
            examples.append(QuestionExample(*texts, None if golds is None else _golds(rows, index, golds)))
        return examples

    def examples(self, inputs: Any) -> list[QuestionExample]:
        """Take (question, context) pairs or mappings."""
        examples = []
        for index, item in enumerate(inputs):
            if isinstance(item, Mapping):
                item = (item.get("question"), item.get("context"))
            if not isinstance(item, (tuple, list)) or len(item) != 2 or not all(isinstance(part, str) for part in item):
                problem = f"must be a (question, context) pair of texts. Got {type(item).__name__}."
                raise InputError(index, problem)
            examples.append(QuestionExample(*item))
        return examples

    def features(self, examples: Sequence[QuestionExample], encoder: Encoder) -> list[Feature]:
        """Windows over the context; `alignment` is (first context position, offsets [tokens, 2])."""
        questions = encoder.plain([example.question for example in examples])
        texts = list(dict.fromkeys(example.context for example in examples))  # questions share contexts
        contexts = dict(zip(texts, encoder.plain(texts), strict=True))
        frame = encoder.pair
        features = []
        for index, (example, question) in enumerate(zip(examples, questions, strict=True)):
            head = np.array(question.ids[: self.max_query_length], np.int64)
            room = self.max_seq_length - frame.width - len(head)
            if room < 2:
                within = f"within {self.max_seq_length} tokens."
                what = f"A question of {len(head)} tokens leaves no room for its context {within}"
                raise UserError(what, hint="Raise --max_seq_length or lower --max_query_length.")
            encoding = contexts[example.context]
            ids, offsets = np.array(encoding.ids, np.int64), np.array(encoding.offsets, np.int64).reshape(-1, 2)
            lead = len(frame.ids[0]) + len(head) + len(frame.ids[1])
            step = room - self._overlap(room)
            for start in range(0, max(1, len(ids)), step):
                input_ids, types = frame.around(head, ids[start : start + room])
                features.append(Feature(index, input_ids, types, (lead, offsets[start : start + room])))
                if start + room >= len(ids):
                    break
        return features

    def targets(self, example: QuestionExample, feature: Feature) -> Mapping[str, Any]:
        """First and last token of the first gold that has an offset; 0, 0 where this window does not hold it."""
        lead, offsets = feature.alignment
        start, end = 0, 0
        text, at = next(((text, at) for text, at in example.gold or () if at >= 0), ("", -1))
        if text:
            inside = np.flatnonzero((offsets[:, 1] > at) & (offsets[:, 0] < at + len(text)))
            holds_all = len(offsets) and offsets[0, 0] <= at and offsets[-1, 1] >= at + len(text)
            if len(inside) and holds_all:
                start, end = lead + int(inside[0]), lead + int(inside[-1])
        return {"start_positions": start, "end_positions": end}

    def decode(
        self, examples: Sequence[QuestionExample], features: Sequence[Feature], logits: Sequence[Logits]
    ) -> list[Answered]:
        """The pair of start and end with the largest sum, among the n best of each, over all windows of a question."""
        found: list[list[tuple[float, int, int]]] = [[] for _ in examples]
        nulls = [np.inf] * len(examples)
        for feature, rows in zip(features, logits, strict=True):
            found[feature.example] += self._candidates(feature, rows)
            nulls[feature.example] = min(nulls[feature.example], float(rows[0].sum()))
        return [self._answer(*row) for row in zip(examples, found, nulls, strict=True)]

    def statistics(
        self, metric: str, examples: Sequence[QuestionExample], answers: Sequence[Answered]
    ) -> NDArray[np.float64]:
        """Exact match or F1 of each question, in the language of the golds."""
        golds = [[text for text, _ in example.gold or ()] for example in examples]
        language = self.answer_language
        if language == "auto":
            language = metrics.answer_language([text for texts in golds for text in texts])
        table = metrics.CMRC if language == "zh" else metrics.SQUAD
        return table[metric].rows(golds, [answer.text for answer in answers])

    def agreement(self, answers: Sequence[Answered], others: Sequence[Answered]) -> NDArray[np.float64]:
        """Questions with the same answer string."""
        return np.array([[float(a.text == b.text), 1.0] for a, b in zip(answers, others, strict=True)])

    def rightness(self, examples: Sequence[QuestionExample], answers: Sequence[Answered]) -> NDArray[np.float64]:
        """The score of each question."""
        return self.statistics(self.metric, examples, answers)[:, 0]

    def _overlap(self, room: int) -> int:
        """Tokens that two windows share: 128 or half the room; if asked for, up to three quarters of it.

        (An overlap of nearly the whole room would make a window for every token.)
        """
        return min(128, room // 2) if self.doc_stride is None else min(self.doc_stride, room * 3 // 4)

    def _candidates(self, feature: Feature, logits: Logits) -> list[tuple[float, int, int]]:
        lead, offsets = feature.alignment
        scores = np.asarray(logits[lead : lead + len(offsets)], np.float64)
        starts = np.argsort(-scores[:, 0], kind="stable")[: self.n_best_size]
        ends = np.argsort(-scores[:, 1], kind="stable")[: self.n_best_size]
        sizes = ends[None, :] - starts[:, None] + 1
        allowed = np.argwhere((sizes >= 1) & (sizes <= self.max_answer_length))
        pairs = [
            (float(scores[starts[i], 0] + scores[ends[j], 1]), int(offsets[starts[i], 0]), int(offsets[ends[j], 1]))
            for i, j in allowed
        ]
        return sorted(pairs, key=lambda pair: -pair[0])[: self.n_best_size]

    def _answer(self, example: QuestionExample, found: list[tuple[float, int, int]], null: float) -> Answered:
        once: dict[tuple[int, int], float] = {}  # windows overlap: a stretch counts with the best of them
        for score, start, end in sorted(found, key=lambda pair: -pair[0]):
            if example.context[start:end].strip():
                once.setdefault(_trimmed(example.context, start, end), score)
        best = list(once.items())[: self.n_best_size]
        if self.no_answer and (not best or null - best[0][1] > self.null_score_diff_threshold):
            share = softmax(np.array([null, *(score for _, score in best)]))[0]
            return Answered("", 0, 0, float(share))
        if not best:
            return Answered("", 0, 0, 0.0)
        (start, end), _ = best[0]
        share = softmax(np.array([score for _, score in best]))[0]
        return Answered(example.context[start:end], start, end, float(share))


def _trimmed(context: str, start: int, end: int) -> tuple[int, int]:
    """Leave out blanks at both ends: to some tokenizers the blank before a word is part of it."""
    text = context[start:end]
    return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())


def _golds(rows: Rows, index: int, golds: Any) -> tuple[tuple[str, int], ...]:
    """Read the golds of one question: texts, or texts with their offsets as the readers give them."""
    if not isinstance(golds, (list, tuple)):
        raise rows.error(index, f"The answers must be a list. Got {type(golds).__name__}.")
    read = []
    for gold in golds:
        text, start = (
            (gold.get("text"), gold.get("start", gold.get("answer_start"))) if isinstance(gold, Mapping) else (gold, -1)
        )
        if not isinstance(text, str):
            raise rows.error(index, f"The text of an answer must be text. Got {type(text).__name__}.")
        read.append((text, int(start) if start is not None else -1))
    return tuple(read)
