"""Questions and answers on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..encoder import Encoder
from .form import (
    PLACE,
    SHARE,
    TEXT,
    OutputTensor,
    Parameters,
    RequestParameter,
    Sample,
    Schema,
    closed,
    json_texts,
    many,
)

if TYPE_CHECKING:
    from ..question_answering import Answered, QuestionExample

CONTEXTS = {
    "en": (
        "The lighthouse on the island was built in 1753 and rebuilt in 1814 after a storm had damaged it. Its lamp "
        "burned oil until 1935, when electric light took its place. Since 1996 nobody lives there; the light is "
        "switched on and off from the mainland, and on summer weekends the harbour master Lena Berg shows visitors "
        "around."
    ),
    "zh": (
        "江边的老图书馆建于一九二六年，由建筑师陈明设计，最初只有两层。一九五八年，图书馆向东扩建，增加了一个可以容纳三百人的"
        "阅览室。二〇一九年起，馆内的古籍陆续完成数字化，读者在家里就能查阅。每逢周三，图书馆闭馆整理图书。"
    ),
}
QUESTIONS = {
    "en": ("When was the lighthouse built?", "Who shows visitors around?", "What did the lamp burn until 1935?"),
    "zh": ("老图书馆是谁设计的？", "阅览室可以容纳多少人？", "图书馆什么时候闭馆？"),
}


class AnswersWire:
    """The answer to every question, its place in the context, and its score."""

    kind: ClassVar[str] = "question_answering"
    parameters: ClassVar[Mapping[str, RequestParameter]] = {
        "doc_stride": RequestParameter({"type": "integer", "minimum": 1}, setting="doc_stride")
    }
    outputs: ClassVar[Mapping[str, OutputTensor]] = {"ANSWER": OutputTensor("BYTES"), "SCORE": OutputTensor("FP32")}

    result_schema: ClassVar[Schema] = closed(
        {
            **dict.fromkeys(("context", "question", "answer"), many(TEXT)),
            **dict.fromkeys(("start", "end"), many(PLACE)),
            "score": many(SHARE),
        }
    )

    def shortest(self, encoder: Encoder) -> int:
        """A token of the question and one of its context."""
        return encoder.pair.width + 2

    def result(
        self, examples: Sequence[QuestionExample], answers: Sequence[Answered], parameters: Parameters
    ) -> dict[str, Any]:
        """What was asked, and the answers."""
        return {
            "context": [example.context for example in examples],
            "question": [example.question for example in examples],
            "answer": [answer.text for answer in answers],
            "start": [answer.start for answer in answers],
            "end": [answer.end for answer in answers],
            "score": [answer.score for answer in answers],
        }

    def tensors(self, answers: Sequence[Answered], parameters: Parameters) -> Mapping[str, list[Any]]:
        """Every answer as JSON, and its score."""
        texts = json_texts([answer.as_json() for answer in answers])
        return {"ANSWER": texts, "SCORE": [answer.score for answer in answers]}

    def samples(self, language: str, pairs: bool | None) -> Sequence[Sample]:
        """Questions about one context."""
        return [{"question": question, "context": CONTEXTS[language]} for question in QUESTIONS[language]]
