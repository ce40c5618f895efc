"""Schemas of what `POST /models/<name>` gives, by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..tasks import Task
from .v2_outputs import kind_of

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_PLACE: Schema = {"type": "integer", "minimum": 0}


def closed(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> Schema:
    """An object that has these entries and no others; all are required unless said.

    >>> closed({"ready": {"type": "boolean"}})["required"]
    ['ready']
    """
    needed = list(properties) if required is None else list(required)
    return {"type": "object", "properties": dict(properties), "required": needed, "additionalProperties": False}


def result_schema(task: Task) -> Schema:
    """What stands under `result`: one entry a text in every list."""
    return _RESULTS[kind_of(task)](task)


def _single(task: Task) -> Schema:
    label = {"type": "integer", "minimum": 0, "maximum": len(task.labels) - 1}
    lists = {"label": _many(label), "confidence": _many(_SHARE), "label_name": _many({"enum": list(task.labels)})}
    return closed({**lists, "scores": _scores(task)}, list(lists))


def _multi(task: Task) -> Schema:
    label = {"type": "integer", "minimum": 0, "maximum": len(task.labels) - 1}
    lists = {
        "label": _many(_many(label)),
        "confidence": _many(_many(_SHARE)),
        "label_name": _many(_many({"enum": list(task.labels)})),
    }
    return closed({**lists, "scores": _scores(task)}, list(lists))


def _number(task: Task) -> Schema:
    return closed({"value": _many({"type": "number"})})


def _tagged(task: Task) -> Schema:
    entity = closed(
        {
            "pos": {"type": "array", "items": _PLACE, "minItems": 2, "maxItems": 2},
            "entity": _TEXT,
            "label": _TEXT,
            "start": _PLACE,
            "end": _PLACE,
            "score": _SHARE,
        }
    )
    return closed({"value": _many(_many(entity)), "tokens": _many(_many(_TEXT)), "tokens_label": _many(_many(_TEXT))})


def _answered(task: Task) -> Schema:
    texts = {name: _many(_TEXT) for name in ("context", "question", "answer")}
    return closed({**texts, "start": _many(_PLACE), "end": _many(_PLACE), "score": _many(_SHARE)})


def _scores(task: Task) -> Schema:
    return _many(closed(dict.fromkeys(task.labels, _SHARE)))


def _many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


_RESULTS = {
    "single_label_classification": _single,
    "multi_label_classification": _multi,
    "regression": _number,
    "token_classification": _tagged,
    "question_answering": _answered,
}
