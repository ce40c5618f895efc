"""SimpleServing's shapes: `{"data", "parameters"}` in, `{"result"}` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UserError, nearest
from ..tasks import Task
from ..tasks.wire import Parameters
from .limits import Limits, Refusal, checked_text, shown
from .models import Model
from .parameters import read_parameters, task_with


@dataclass(frozen=True)
class Asked:
    """A request, read: the task with its parameters, and the examples."""

    task: Task
    examples: Sequence[Any]
    parameters: Parameters


def read(content: Any, model: Model, schemas: Mapping[str, Mapping[str, Any]], limits: Limits) -> Asked:
    """Check a body's JSON and take the examples out of it."""
    if not isinstance(content, dict):
        raise Refusal(422, f"The body must be an object with 'data'. Got {shown(content)}.")
    _known(content, ("data", "parameters"), "The body")
    if "data" not in content:
        raise Refusal(422, "The body lacks 'data'.")
    data = content["data"]
    if not isinstance(data, dict):
        raise Refusal(422, f"'data' must be an object with {_listed(model.inputs)}. Got {shown(data)}.")
    _known(data, model.inputs, "'data'")
    parameters = read_parameters(content.get("parameters"), schemas)
    return Asked(task_with(model, parameters), _examples(data, model, parameters, limits), parameters)


def _examples(data: Mapping[str, Any], model: Model, parameters: Parameters, limits: Limits) -> list[Any]:
    columns: dict[str, list[Any]] = {}
    for text in model.task.facts.inputs:
        if text.optional and data.get(text.name) is None:
            continue
        take = _sentences if text.words is not None and parameters.get(text.words) else _texts
        column = columns[text.name] = take(data.get(text.name), f"'{text.name}'", limits)
        first, rows = next(iter(columns.items()))
        if len(column) != len(rows):
            counts = f"{len(rows)} of '{first}' and {len(column)} of '{text.name}'"
            raise Refusal(422, f"There are {counts}: as many are needed.")
    rows_of = zip(*columns.values(), strict=True)
    try:
        return model.task.examples([dict(zip(columns, row, strict=True)) for row in rows_of])
    except UserError as error:
        raise Refusal(422, str(error)) from None


def _texts(value: Any, what: str, limits: Limits) -> list[str]:
    if isinstance(value, str):
        return [checked_text(value, what, limits)]
    if not isinstance(value, list):
        raise Refusal(422, f"{what} must be a text or a list of texts. Got {shown(value)}.")
    _count(len(value), limits)
    return [checked_text(text, f"{what}, number {number},", limits) for number, text in enumerate(value)]


def _sentences(value: Any, what: str, limits: Limits) -> list[list[str]]:
    """Lists of words; one list of words is one sentence."""
    if not isinstance(value, list):
        raise Refusal(422, f"{what} must be a list of words, or of lists of words. Got {shown(value)}.")
    sentences = [value] if value and all(isinstance(word, str) for word in value) else value
    _count(len(sentences), limits)
    for number, words in enumerate(sentences):
        if not isinstance(words, list):
            raise Refusal(422, f"{what}, number {number}, must be a list of words. Got {shown(words)}.")
        total = sum(len(checked_text(word, f"A word of {what}, number {number},", limits)) + 1 for word in words)
        if total > limits.max_text_length + 1:
            most = limits.max_text_length
            raise Refusal(422, f"{what}, number {number}, has {total} characters, of which {most} are allowed.")
    return sentences


def _count(texts: int, limits: Limits) -> None:
    if texts > limits.max_texts:
        raise Refusal(422, f"The request has {texts} texts, of which {limits.max_texts} are allowed.")


def _known(content: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    for name in content:
        if name not in names:
            raise Refusal(422, f"{what} has no entry '{name[:60]}'. {nearest(name[:60], names)}")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)
