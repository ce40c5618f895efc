"""The `parameters` of a request: which there are for a task, and the task with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import nearest
from ..tasks import Task
from ..tasks.wire import Parameters, Schema
from .limits import Refusal, shown
from .models import Model

ANY_LENGTH = 8192
"""The longest sequence to be asked for from a model that has no table of positions."""


def offered(model: Model, *, tensors: bool = False) -> dict[str, Schema]:
    """JSON schemas of the parameters that a model takes, by name; `tensors`: in the Open Inference Protocol.

    `batch_size` is taken and passed over: see `batching`.
    """
    least = model.wire.shortest(model.predictor.encoder)
    most = model.longest or max(ANY_LENGTH, model.task.max_seq_length)
    own = {name: one.schema for name, one in model.wire.parameters.items() if one.of_tensors or not tensors}
    return {
        "max_seq_len": {"type": "integer", "minimum": least, "maximum": max(most, least)},
        "batch_size": {"type": "integer", "minimum": 1},
        **own,
    }


def task_with(model: Model, parameters: Parameters) -> Task:
    """The task with what was asked for; the very same object where nothing was."""
    changes: dict[str, Any] = {}
    if parameters.get("max_seq_len") not in (None, model.task.max_seq_length):
        changes["max_seq_length"] = parameters["max_seq_len"]
    for name, one in model.wire.parameters.items():
        if one.setting is not None and name in parameters:
            changes[one.setting] = parameters[name]
    return dataclasses.replace(model.task, **changes) if changes else model.task  # type: ignore[type-var]


def read_parameters(content: Any, schemas: Mapping[str, Mapping[str, Any]]) -> Parameters:
    """Check what came against the schemas; null, and no parameters at all, are the defaults."""
    if content is None or content == {}:
        return {}
    if not isinstance(content, dict):
        raise Refusal(422, f"'parameters' must be an object. Got {shown(content)}.")
    for name, value in content.items():
        if name not in schemas:
            raise Refusal(422, f"There is no parameter '{name[:60]}'. {nearest(name[:60], schemas)}")
        _check(name, value, schemas[name])
    return content


_KINDS = {"integer": (int,), "number": (int, float), "boolean": (bool,)}
_WORDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}


def _check(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    kind = schema["type"]
    if type(value) not in _KINDS[kind]:
        raise Refusal(422, f"The parameter '{name}' must be {_WORDS[kind]}. Got {shown(value)}.")
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise Refusal(422, f"The parameter '{name}' must be {bounds}.")
