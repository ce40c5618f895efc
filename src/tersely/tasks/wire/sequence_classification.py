"""One label, several labels or a number for a text, on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..encoder import Encoder
from .form import FLAG, SHARE, OutputTensor, Parameters, RequestParameter, Sample, Schema, closed, json_texts, many

if TYPE_CHECKING:
    from ..sequence_classification import Classified

ALL_SCORES = RequestParameter(FLAG, of_tensors=False)
LIMIT = 0.5
"""The probability above which a label is given where there can be several."""

SINGLE = {
    "en": (
        {"text": "The service was slow, but the food more than made up for it."},
        {"text": "Nobody at the desk could tell me when the train would arrive."},
        {"text": "The new phone lasts two days on one charge and weighs less than the old one."},
    ),
    "zh": (
        {"text": "主队在最后一分钟攻入制胜一球，全场球迷欢呼庆祝。"},
        {"text": "手机收到的时候屏幕已经碎了，客服说要等三天才能处理。"},
        {"text": "新款电动车续航超过六百公里，售价二十万元起。"},
    ),
}
PAIRED = {
    "en": (
        {
            "text": "The company said that its profit rose by 12 percent in the first quarter.",
            "text_pair": "Profit was up 12 percent in the first three months of the year, the company said.",
        },
        {
            "text": "The museum opens at nine and closes at five.",
            "text_pair": "The museum was built by an architect from Oslo.",
        },
        {
            "text": "Shares of the airline fell 3 percent after it warned of higher fuel costs.",
            "text_pair": "The airline's shares rose after it said that fuel had become cheaper.",
        },
    ),
    "zh": (
        {"text": "请问怎么修改收货地址？", "text_pair": "下单以后还能换一个收货地址吗？"},
        {"text": "博物馆早上九点开门，下午五点关门。", "text_pair": "这座博物馆是一位建筑师设计的。"},
        {"text": "航空公司的股价下跌了百分之三。", "text_pair": "燃油便宜了，这家航空公司的股票随之上涨。"},
    ),
}


class _TextWire:
    """What the three have in common: a text or a pair goes in."""

    def shortest(self, encoder: Encoder) -> int:
        """A token beside the special ones of a pair."""
        return encoder.pair.width + 1

    def samples(self, language: str, pairs: bool | None) -> Sequence[Sample]:
        """Single texts and a pair, or only what the model is for."""
        single, paired = {True: (0, 3), False: (3, 0), None: (2, 1)}[pairs]
        return [*SINGLE[language][:single], *PAIRED[language][:paired]]


@dataclass(frozen=True)
class LabelWire(_TextWire):
    """One label for each row, by number and by name."""

    kind: ClassVar[str] = "single_label_classification"
    parameters: ClassVar[Mapping[str, RequestParameter]] = {"all_scores": ALL_SCORES}

    labels: tuple[str, ...]

    @property
    def result_schema(self) -> Schema:
        """Numbers, probabilities and names; the scores of all labels only where they are asked for."""
        return _result_schema(self.labels, lambda schema: schema)

    @property
    def outputs(self) -> Mapping[str, OutputTensor]:
        """The label, its probability, and that of every label."""
        scores = OutputTensor("FP32", len(self.labels))
        return {"LABEL": OutputTensor("BYTES"), "SCORE": OutputTensor("FP32"), "SCORES": scores}

    def result(self, examples: Sequence[Any], answers: Sequence[Classified], parameters: Parameters) -> dict[str, Any]:
        """Numbers, probabilities and names."""
        return {
            "label": [answer.value for answer in answers],
            "confidence": [answer.score for answer in answers],
            "label_name": [answer.label for answer in answers],
        } | _all_scores(answers, parameters)

    def tensors(self, answers: Sequence[Classified], parameters: Parameters) -> Mapping[str, list[Any]]:
        """The label, its probability, and that of every label."""
        labels, scores = [answer.label for answer in answers], [answer.score for answer in answers]
        return {"LABEL": labels, "SCORE": scores, "SCORES": _every_score(answers)}


@dataclass(frozen=True)
class LabelsWire(_TextWire):
    """The labels above a limit for each row, by number and by name."""

    kind: ClassVar[str] = "multi_label_classification"
    parameters: ClassVar[Mapping[str, RequestParameter]] = {
        "all_scores": ALL_SCORES,
        "prob_limit": RequestParameter({"type": "number", "minimum": 0, "maximum": 1}),
    }

    labels: tuple[str, ...]

    @property
    def result_schema(self) -> Schema:
        """Lists of numbers, probabilities and names; the scores of all labels only where they are asked for."""
        return _result_schema(self.labels, many)

    @property
    def outputs(self) -> Mapping[str, OutputTensor]:
        """The labels as a JSON list, and the probability of every label."""
        return {"LABEL": OutputTensor("BYTES"), "SCORES": OutputTensor("FP32", len(self.labels))}

    def result(self, examples: Sequence[Any], answers: Sequence[Classified], parameters: Parameters) -> dict[str, Any]:
        """Lists of numbers, probabilities and names."""
        limit = parameters.get("prob_limit", LIMIT)
        chances = [list(answer.scores.values()) for answer in answers]
        chosen = [[i for i, chance in enumerate(row) if chance > limit] for row in chances]
        return {
            "label": chosen,
            "confidence": [[row[i] for i in on] for row, on in zip(chances, chosen, strict=True)],
            "label_name": [[self.labels[i] for i in on] for on in chosen],
        } | _all_scores(answers, parameters)

    def tensors(self, answers: Sequence[Classified], parameters: Parameters) -> Mapping[str, list[Any]]:
        """The labels as a JSON list, and the probability of every label."""
        limit = parameters.get("prob_limit", LIMIT)
        chosen = [[name for name, chance in answer.scores.items() if chance > limit] for answer in answers]
        return {"LABEL": json_texts(chosen), "SCORES": _every_score(answers)}


@dataclass(frozen=True)
class NumberWire(_TextWire):
    """A number for each row."""

    kind: ClassVar[str] = "regression"
    parameters: ClassVar[Mapping[str, RequestParameter]] = {}
    result_schema: ClassVar[Schema] = closed({"value": many({"type": "number"})})
    outputs: ClassVar[Mapping[str, OutputTensor]] = {"VALUE": OutputTensor("FP32")}

    labels: tuple[str, ...]

    def result(self, examples: Sequence[Any], answers: Sequence[Classified], parameters: Parameters) -> dict[str, Any]:
        """Numbers."""
        return {"value": [answer.value for answer in answers]}

    def tensors(self, answers: Sequence[Classified], parameters: Parameters) -> Mapping[str, list[Any]]:
        """Numbers."""
        return {"VALUE": [answer.value for answer in answers]}


def _result_schema(labels: Sequence[str], of_row: Callable[[Schema], Schema]) -> Schema:
    number: Schema = {"type": "integer", "minimum": 0, "maximum": len(labels) - 1}
    columns = {"label": number, "confidence": SHARE, "label_name": {"enum": list(labels)}}
    lists = {name: many(of_row(schema)) for name, schema in columns.items()}
    return closed({**lists, "scores": many(closed(dict.fromkeys(labels, SHARE)))}, list(lists))


def _all_scores(answers: Sequence[Classified], parameters: Parameters) -> dict[str, Any]:
    """The probability of every label, where the request wants it."""
    return {"scores": [answer.scores for answer in answers]} if parameters.get("all_scores") else {}


def _every_score(answers: Sequence[Classified]) -> list[float]:
    return [chance for answer in answers for chance in answer.scores.values()]
