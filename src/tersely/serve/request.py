"""What a request asks of a model: JSON in SimpleServing's shape, `{"data", "parameters"}`, read and checked.

`v2` brings the Open Inference Protocol into the same shape. A request that asks for more than it may is refused with a
status and one line.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from ..errors import UserError, nearest
from ..tasks import Task
from ..tasks.wire import Parameters, Schema, closed
from .models import ServedModel
from .server_options import DEEPEST, Limits

JSON = b"application/json"

ANY_LENGTH = 8192
"""The longest sequence to be asked for from a model that has no table of positions."""

_KINDS = {
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
}
_TOO_DEEP = f"The body's JSON is nested more than {DEEPEST} deep."


class Refusal(Exception):
    """A request that gets no answer: the status, one line, and further headers.

    >>> print(Refusal(422, "There is no text."))
    There is no text.
    """

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.line, self.headers = status, line, dict(headers or {})
        super().__init__(line)

    def body(self) -> bytes:
        """The JSON that says why there is no answer."""
        # What a client wrote may stand in the line: half a surrogate pair is replaced.
        return json.dumps({"error": self.line}, ensure_ascii=False).encode("utf-8", "replace")


class Query(NamedTuple):
    """A request, read: the task with its parameters, and the examples."""

    task: Task
    examples: list[Any]
    parameters: Parameters


def read_query(content: Any, model: ServedModel, schemas: Mapping[str, Schema], limits: Limits) -> Query:
    """Check a body's JSON and take the examples out of it; `schemas` are those of `offered`."""
    if not isinstance(content, dict):
        raise Refusal(422, f"The body must be an object with 'data'. Got {shown(content)}.")
    refuse_unknown(content, ("data", "parameters"), "The body has no entry")
    if "data" not in content:
        raise Refusal(422, "The body lacks 'data'.")
    data = content["data"]
    if not isinstance(data, dict):
        wanted = " and ".join(f"'{name}'" for name in model.inputs)
        raise Refusal(422, f"'data' must be an object with {wanted}. Got {shown(data)}.")
    refuse_unknown(data, model.inputs, "'data' has no entry")
    parameters = _parameters(content.get("parameters"), schemas)
    return Query(_task_with(model, parameters), _examples(data, model, parameters, limits), parameters)


def query_schema(model: ServedModel, limits: Limits) -> Schema:
    """The JSON schema of what `read_query` takes."""
    text: Schema = {"type": "string", "maxLength": limits.max_text_length}
    texts: Schema = {"type": "array", "items": text, "maxItems": limits.max_texts}
    sentence: Schema = {"type": "array", "items": text}  # of words, with the parameter that says so
    sentences: Schema = {"type": "array", "items": sentence, "maxItems": limits.max_texts}
    names: Schema = {}
    for column in model.task.facts.inputs:
        more = [sentence, sentences] if column.words else []
        names[column.name] = {"anyOf": [text, texts, *more, *([{"type": "null"}] if column.optional else [])]}
    needed = [column.name for column in model.task.facts.inputs if not column.optional]
    parameters = {"anyOf": [closed(offered(model), []), {"type": "null"}]}
    return closed({"data": closed(names, needed), "parameters": parameters}, ["data"])


def offered(model: ServedModel, *, tensors: bool = False) -> dict[str, Schema]:
    """JSON schemas of the parameters that a model takes, by name; `tensors`: in the Open Inference Protocol.

    `batch_size` is taken and passed over: see `batching`.
    """
    least = model.wire.shortest(model.predictor.encoder)
    most = model.longest or max(ANY_LENGTH, model.task.max_seq_length)
    own = model.wire.parameters.items()
    return {
        "max_seq_len": {"type": "integer", "minimum": least, "maximum": max(most, least)},
        "batch_size": {"type": "integer", "minimum": 1},
        **{name: parameter.schema for name, parameter in own if parameter.of_tensors or not tensors},
    }


def read_json(body: bytes) -> Any:
    """A body's JSON: UTF-8, not nested deeper than anything that is taken.

    >>> read_json(b'{"data": 1}')
    {'data': 1}
    """
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Refusal(422, "The body is not UTF-8.") from None
    except RecursionError:
        raise Refusal(422, _TOO_DEEP) from None
    except ValueError as error:
        raise Refusal(422, f"The body is not JSON: {error}.") from None
    # Only what has many brackets can be deep; short bodies are not walked through.
    if body.count(b"[") + body.count(b"{") > DEEPEST and _depth_exceeds(content, DEEPEST):
        raise Refusal(422, _TOO_DEEP)
    return content


def checked_text(value: Any, what: str, limits: Limits) -> str:
    """A text that is not too long and that UTF-8 can spell."""
    if not isinstance(value, str):
        raise Refusal(422, f"{what} must be a text. Got {shown(value)}.")
    if len(value) > limits.max_text_length:
        raise Refusal(422, f"{what} has {len(value)} characters, of which {limits.max_text_length} are allowed.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
            raise Refusal(422, f"{what} is not valid Unicode: it has half a surrogate pair.") from None
    return value


def shown(value: Any) -> str:
    """What came, in JSON's words and briefly, for messages."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def refuse_unknown(came: Iterable[str], names: Collection[str], sentence: str) -> None:
    """Refuse a name that is not among these; the sentence ends with it."""
    for name in came:
        if name not in names:
            raise Refusal(422, f"{sentence} '{name[:60]}'. {nearest(name[:60], names)}")


def check_parameter(name: str, value: Any, schema: Schema) -> None:
    """Refuse a value that is not as the schema says."""
    types, words = _KINDS[schema["type"]]
    if type(value) not in types:
        raise Refusal(422, f"The parameter '{name}' must be {words}. Got {shown(value)}.")
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise Refusal(422, f"The parameter '{name}' must be {bounds}.")


def _examples(data: Mapping[str, Any], model: ServedModel, parameters: Parameters, limits: Limits) -> list[Any]:
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
    _check_count(len(value), limits)
    return [checked_text(text, f"{what}, number {number},", limits) for number, text in enumerate(value)]


def _sentences(value: Any, what: str, limits: Limits) -> list[list[str]]:
    """Lists of words; one list of words is one sentence."""
    if not isinstance(value, list):
        raise Refusal(422, f"{what} must be a list of words, or of lists of words. Got {shown(value)}.")
    sentences = [value] if value and all(isinstance(word, str) for word in value) else value
    _check_count(len(sentences), limits)
    for number, words in enumerate(sentences):
        if not isinstance(words, list):
            raise Refusal(422, f"{what}, number {number}, must be a list of words. Got {shown(words)}.")
        total = sum(len(checked_text(word, f"A word of {what}, number {number},", limits)) + 1 for word in words)
        if total > limits.max_text_length + 1:
            most = limits.max_text_length
            raise Refusal(422, f"{what}, number {number}, has {total} characters, of which {most} are allowed.")
    return sentences


def _check_count(texts: int, limits: Limits) -> None:
    if texts > limits.max_texts:
        raise Refusal(422, f"The request has {texts} texts, of which {limits.max_texts} are allowed.")


def _task_with(model: ServedModel, parameters: Parameters) -> Task:
    """The task with what was asked for; the very same object where nothing was."""
    changes: dict[str, Any] = {}
    if parameters.get("max_seq_len") not in (None, model.task.max_seq_length):
        changes["max_seq_length"] = parameters["max_seq_len"]
    for name, parameter in model.wire.parameters.items():
        if parameter.setting is not None and name in parameters:
            changes[parameter.setting] = parameters[name]
    return dataclasses.replace(model.task, **changes) if changes else model.task  # type: ignore[type-var]


def _parameters(content: Any, schemas: Mapping[str, Schema]) -> Parameters:
    """Check what came against the schemas; null, and no parameters at all, are the defaults."""
    if content is None or content == {}:
        return {}
    if not isinstance(content, dict):
        raise Refusal(422, f"'parameters' must be an object. Got {shown(content)}.")
    for name, value in content.items():
        refuse_unknown((name,), schemas, "There is no parameter")
        check_parameter(name, value, schemas[name])
    return content


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _depth_exceeds(content: Any, deepest: int) -> bool:
    level = [content] if isinstance(content, (dict, list)) else []
    for _ in range(deepest):
        inner = chain.from_iterable(value.values() if isinstance(value, dict) else value for value in level)
        level = [part for part in inner if isinstance(part, (dict, list))]
    return bool(level)
