"""JSON schemas that several tasks use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
PLACE: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}


def closed(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> Schema:
    """An object that has these entries and no others; all are required unless said.

    >>> closed({"ready": {"type": "boolean"}})["required"]
    ['ready']
    """
    needed = list(properties) if required is None else list(required)
    return {"type": "object", "properties": dict(properties), "required": needed, "additionalProperties": False}


def many(schema: Schema) -> Schema:
    """A list of these."""
    return {"type": "array", "items": schema}


def json_texts(values: Sequence[Any]) -> list[str]:
    """Each value as JSON, for a tensor of BYTES."""
    return [json.dumps(value, ensure_ascii=False) for value in values]
