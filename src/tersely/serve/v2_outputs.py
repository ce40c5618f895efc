"""Answers as the tensors of the Open Inference Protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..tasks import QuestionAnswering, SequenceClassification, Task, TokenClassification
from .simple import Asked

OUTPUTS: Mapping[str, Mapping[str, str]] = {
    "single_label_classification": {"LABEL": "BYTES", "SCORE": "FP32", "SCORES": "FP32"},
    "multi_label_classification": {"LABEL": "BYTES", "SCORES": "FP32"},
    "regression": {"VALUE": "FP32"},
    TokenClassification.name: {"ENTITIES": "BYTES", "SCORE": "FP32"},
    QuestionAnswering.name: {"ANSWER": "BYTES", "SCORE": "FP32"},
}
"""Names and datatypes of the outputs by kind of task. BYTES that are no plain label are JSON."""

Tensor = tuple[str, list[Any], int | None]
"""Datatype, values in row-major order, and the width of a row (None: one value)."""


def kind_of(task: Task) -> str:
    """The task's name, or of classifiers the kind of their answer."""
    return task.problem if isinstance(task, SequenceClassification) else task.name


def tensors(asked: Asked, answers: Sequence[Any]) -> dict[str, Tensor]:
    """Every output of the task, by name."""
    kind = kind_of(asked.task)
    if kind == "regression":
        return {"VALUE": ("FP32", [answer.value for answer in answers], None)}
    if kind == TokenClassification.name:
        texts = [_json(answer.as_json()) for answer in answers]
        scores = [float(np.mean(answer.scores)) if answer.scores else 1.0 for answer in answers]
        return {"ENTITIES": ("BYTES", texts, None), "SCORE": ("FP32", scores, None)}
    if kind == QuestionAnswering.name:
        texts = [_json(answer.as_json()) for answer in answers]
        return {"ANSWER": ("BYTES", texts, None), "SCORE": ("FP32", [answer.score for answer in answers], None)}
    every = [chance for answer in answers for chance in answer.scores.values()]
    chances: Tensor = ("FP32", every, len(asked.task.labels))
    if kind == "multi_label_classification":
        limit = asked.parameters.prob_limit
        chosen = [[name for name, chance in answer.scores.items() if chance > limit] for answer in answers]
        return {"LABEL": ("BYTES", [_json(names) for names in chosen], None), "SCORES": chances}
    labels, scores = [answer.label for answer in answers], [answer.score for answer in answers]
    return {"LABEL": ("BYTES", labels, None), "SCORE": ("FP32", scores, None), "SCORES": chances}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
