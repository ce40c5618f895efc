"""Tags and entities on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..encoder import Encoder
from .form import (
    FLAG,
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
    from ..token_classification import Tagged

SPLIT = "is_split_into_words"
TEXTS = {
    "en": (
        {"text": "Ada Okafor moved from Lagos to Geneva in 1998 to work for the Red Cross."},
        {"text": "The University of Oslo and Siemens opened a laboratory in Hamburg on Tuesday."},
    ),
    "zh": (
        {"text": "昨天下午，张伟从北京飞往上海，参加中国科学院的年度会议。"},
        {"text": "李娜毕业于南京大学，现在在联合国教科文组织工作，常住巴黎。"},
    ),
}
PAIR = {"type": "array", "items": PLACE, "minItems": 2, "maxItems": 2}
ENTITY = closed({"pos": PAIR, "entity": TEXT, "label": TEXT, "start": PLACE, "end": PLACE, "score": SHARE})


class TagsWire:
    """Entities with their places, and a tag for each word."""

    kind: ClassVar[str] = "token_classification"
    parameters: ClassVar[Mapping[str, RequestParameter]] = {SPLIT: RequestParameter(FLAG, of_tensors=False)}
    outputs: ClassVar[Mapping[str, OutputTensor]] = {"ENTITIES": OutputTensor("BYTES"), "SCORE": OutputTensor("FP32")}

    result_schema: ClassVar[Schema] = closed(
        {"value": many(many(ENTITY)), "tokens": many(many(TEXT)), "tokens_label": many(many(TEXT))}
    )

    def shortest(self, encoder: Encoder) -> int:
        """A token between the special ones."""
        return encoder.single.width + 1

    def result(self, examples: Sequence[Any], answers: Sequence[Tagged], parameters: Parameters) -> dict[str, Any]:
        """`pos` are the first and the last character, as there; `start` and `end` (exclusive) as Python slices."""
        value = [
            [
                {
                    "pos": [entity.start, entity.end - 1],
                    "entity": entity.text,
                    "label": entity.label,
                    "start": entity.start,
                    "end": entity.end,
                    "score": entity.score,
                }
                for entity in answer.entities
            ]
            for answer in answers
        ]
        tokens = [list(answer.words) for answer in answers]
        return {"value": value, "tokens": tokens, "tokens_label": [list(answer.tags) for answer in answers]}

    def tensors(self, answers: Sequence[Tagged], parameters: Parameters) -> Mapping[str, list[Any]]:
        """Every answer as JSON, and the mean probability of its tags."""
        scores = [float(np.mean(answer.scores)) if answer.scores else 1.0 for answer in answers]
        return {"ENTITIES": json_texts([answer.as_json() for answer in answers]), "SCORE": scores}

    def samples(self, language: str, pairs: bool | None) -> Sequence[Sample]:
        """Texts with names in them."""
        return TEXTS[language]
