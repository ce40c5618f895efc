"""The Open Inference Protocol (v2) over HTTP: texts in as BYTES, labels and scores out.

With its binary tensor extension: JSON first, then the tensors' bytes in the order of the JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import __version__
from ..tasks.wire import Schema, closed
from .models import ServedModel
from .request import (
    Query,
    Refusal,
    check_parameter,
    checked_text,
    offered,
    read_json,
    read_query,
    refuse_unknown,
    shown,
)
from .server_options import Limits

HEADER = "Inference-Header-Content-Length"
VERSION = "1"
SERVER = {"name": "tersely", "version": __version__, "extensions": ["binary_tensor_data"]}
_FLAG: Schema = {"type": "boolean"}


class Inference(NamedTuple):
    """A request, read: what is asked, the `id` to give back, and the outputs wanted, each in binary or not."""

    query: Query
    id: str | None
    outputs: Mapping[str, bool]
    column: bool
    """Whether texts came as [rows, 1]: answers go back so too."""


def metadata(model: ServedModel) -> dict[str, Any]:
    """What `/v2/models/<name>` says."""
    columns = [{"name": name.upper(), "datatype": "BYTES", "shape": [-1]} for name in model.inputs]
    outputs = [
        {"name": name, "datatype": output.datatype, "shape": [-1] if output.width is None else [-1, output.width]}
        for name, output in model.wire.outputs.items()
    ]
    platform = f"tersely_{model.predictor.engine.name}"
    return {"name": model.name, "versions": [VERSION], "platform": platform, "inputs": columns, "outputs": outputs}


def read(
    body: bytes, json_length: str | None, model: ServedModel, schemas: Mapping[str, Schema], limits: Limits
) -> Inference:
    """Check a request, in JSON or with binary tensors; `schemas` are those of `request.offered`."""
    head, tail = _split(body, json_length)
    content = read_json(head)
    if not isinstance(content, dict):
        raise Refusal(422, f"The body must be an object with 'inputs'. Got {shown(content)}.")
    refuse_unknown(content, ("id", "parameters", "inputs", "outputs"), "The request has no entry")
    id_ = content.get("id")
    if id_ is not None:
        id_ = checked_text(id_, "'id'", limits)
    parameters = _object(content.get("parameters"), "'parameters'")
    all_binary = parameters.pop("binary_data_output", False)
    check_parameter("binary_data_output", all_binary, _FLAG)
    inputs = _tensors(content.get("inputs"), "inputs", ("name", "shape", "datatype", "parameters", "data"))
    for tensor in inputs:
        _parameters(tensor, tensor["name"][:60], "binary_data_size")
    columns, column = _texts(inputs, _binary_inputs(inputs, tail), model, limits)
    query = read_query({"data": columns, "parameters": parameters}, model, schemas, limits)
    wanted = _wanted(content.get("outputs"), model.wire.outputs, all_binary)
    return Inference(query, id_, wanted, column)


def answer(model: ServedModel, inference: Inference, answers: Sequence[Any]) -> tuple[bytes, int | None]:
    """The response's body, and the length of its JSON where binary tensors follow."""
    known, found = model.wire.outputs, model.wire.tensors(answers, inference.query.parameters)
    outputs, raws = [], []
    for name, binary in inference.outputs.items():
        (datatype, width), values = known[name], found[name]
        shape = [len(answers)] if width is None else [len(answers), width]
        if width is None and inference.column:
            shape.append(1)
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if binary:
            raws.append(_raw(values, datatype))
            entry["parameters"] = {"binary_data_size": len(raws[-1])}
        else:
            entry["data"] = values
        outputs.append(entry)
    content: dict[str, Any] = {"model_name": model.name, "model_version": VERSION, "outputs": outputs}
    if inference.id is not None:
        content["id"] = inference.id
    head = json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return (b"".join([head, *raws]), len(head)) if raws else (head, None)


def body_schema(model: ServedModel, limits: Limits) -> Schema:
    """The JSON schema of what `read` takes without binary tensors."""
    text: Schema = {"type": "string", "maxLength": limits.max_text_length}
    tensor = closed(
        {
            "name": {"enum": [name.upper() for name in model.inputs]},
            "datatype": {"const": "BYTES"},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 2},
            "data": {"type": "array", "items": text, "maxItems": limits.max_texts},
            "parameters": _or_null(closed({})),
        },
        ["name", "datatype", "shape", "data"],
    )
    binary = _or_null(closed({"binary_data": _FLAG}, []))
    output = closed({"name": {"enum": list(model.wire.outputs)}, "parameters": binary}, ["name"])
    return closed(
        {
            "id": {"type": ["string", "null"]},
            "inputs": {"type": "array", "items": tensor, "minItems": 1, "maxItems": len(model.inputs)},
            "outputs": _or_null({"type": "array", "items": output}),
            "parameters": _or_null(closed({**offered(model, tensors=True), "binary_data_output": _FLAG}, [])),
        },
        ["inputs"],
    )


def answer_schema(model: ServedModel) -> Schema:
    """The JSON schema of what `answer` gives without binary tensors."""
    tensor = closed(
        {
            "name": {"enum": list(model.wire.outputs)},
            "datatype": {"enum": ["BYTES", "FP32"]},
            "shape": {"type": "array", "items": {"type": "integer"}},
            "data": {"type": "array", "items": {"type": ["string", "number"]}},
            "parameters": closed({"binary_data_size": {"type": "integer"}}),
        },
        ["name", "datatype", "shape"],
    )
    content = {
        "model_name": {"const": model.name},
        "model_version": {"const": VERSION},
        "id": {"type": "string"},
        "outputs": {"type": "array", "items": tensor},
    }
    return closed(content, ["model_name", "model_version", "outputs"])


def _texts(
    inputs: Sequence[Mapping[str, Any]], raws: Mapping[str, bytes], model: ServedModel, limits: Limits
) -> tuple[dict[str, Any], bool]:
    """Texts by the names that the task has for them; whether they stand in a column."""
    known = {name.upper(): name for name in model.inputs}
    columns: dict[str, Any] = {}
    shapes = set()
    for tensor in inputs:
        name = tensor["name"]
        refuse_unknown((name,), known, "The model has no input")
        if known[name] in columns:
            raise Refusal(422, f"The input '{name}' is there twice.")
        if tensor.get("datatype") != "BYTES":
            raise Refusal(422, f"The input '{name}' must be of datatype BYTES.")
        binary = name in raws
        if binary == ("data" in tensor):
            raise Refusal(422, f"The input '{name}' must have either 'data' or 'binary_data_size'.")
        texts = texts_of(raws[name], name, limits.max_texts) if binary else _flat(tensor["data"], name)
        shape = tensor.get("shape")
        # `[False] == [0]` to Python.
        integers = isinstance(shape, list) and all(type(size) is int for size in shape)
        if not (integers and shape in ([len(texts)], [len(texts), 1])) and len(texts) <= limits.max_texts:
            raise Refusal(422, f"The input '{name}' has {len(texts)} texts: its shape must be [{len(texts)}].")
        shapes.add(len(shape) if isinstance(shape, list) else 1)
        columns[known[name]] = texts
    for text in model.task.facts.inputs:
        if not text.optional and text.name not in columns:
            raise Refusal(422, f"The request lacks the input '{text.name.upper()}'.")
    return columns, shapes == {2}


def _flat(data: Any, name: str) -> list[Any]:
    """Texts in JSON: a list, or a list of lists of one."""
    if not isinstance(data, list):
        raise Refusal(422, f"'data' of '{name}' must be a list. Got {shown(data)}.")
    return [part[0] if isinstance(part, list) and len(part) == 1 else part for part in data]


def _wanted(outputs: Any, known: Mapping[str, Any], all_binary: bool) -> dict[str, bool]:
    if outputs is None or outputs == []:
        return dict.fromkeys(known, all_binary)
    wanted: dict[str, bool] = {}
    for tensor in _tensors(outputs, "outputs", ("name", "parameters")):
        name = tensor["name"]
        refuse_unknown((name,), known, "The model has no output")
        wanted[name] = _parameters(tensor, name, "binary_data").get("binary_data", all_binary)
        check_parameter("binary_data", wanted[name], _FLAG)
    return wanted


def _tensors(value: Any, what: str, entries: Sequence[str]) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise Refusal(422, f"'{what}' must be a list of tensors. Got {shown(value)}.")
    for tensor in value:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise Refusal(422, f"Each of '{what}' must be an object with a 'name'.")
        refuse_unknown(tensor, entries, f"A tensor of '{what}' has no entry")
    return value


def _parameters(tensor: Mapping[str, Any], name: str, known: str) -> dict[str, Any]:
    what = f"'parameters' of '{name}'"
    parameters = _object(tensor.get("parameters"), what)
    refuse_unknown(parameters, (known,), f"{what} has no entry")
    return parameters


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise Refusal(422, f"{what} must be an object. Got {shown(value)}.")
    return dict(value or {})


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _split(body: bytes, json_length: str | None) -> tuple[bytes, bytes]:
    """A body's JSON and what follows it; without the header all of it is JSON."""
    if json_length is None:
        return body, b""
    if not (json_length.isascii() and json_length.isdigit() and len(json_length) < 16):
        raise Refusal(422, f"The header {HEADER} must be a whole number.")
    length = int(json_length)
    if length > len(body):
        raise Refusal(422, f"The header {HEADER} says {length}, but the body has {len(body)} bytes.")
    return body[:length], body[length:]


def _binary_inputs(inputs: Sequence[Mapping[str, Any]], tail: bytes) -> dict[str, bytes]:
    """The bytes of each input that says how many it has, by name; all of the tail must be somebody's."""
    found: dict[str, bytes] = {}
    start = 0
    for tensor in inputs:
        size = (tensor.get("parameters") or {}).get("binary_data_size")
        if size is None:
            continue
        if type(size) is not int or not 0 <= size <= len(tail) - start:
            raise Refusal(422, f"The 'binary_data_size' of '{tensor['name']}' does not fit the {len(tail)} bytes sent.")
        found[tensor["name"]] = tail[start : start + size]
        start += size
    if start != len(tail):
        raise Refusal(422, f"The inputs name {start} bytes of binary data, but {len(tail)} were sent.")
    return found


def texts_of(raw: bytes, name: str, most: int) -> list[str]:
    """BYTES elements: each its length in four bytes, little end first, and UTF-8. At most so many are read.

    >>> texts_of(b"\\x02\\x00\\x00\\x00hi", "TEXT", 1)
    ['hi']
    """
    found: list[str] = []
    start = 0
    while start < len(raw) and len(found) <= most:  # one too many is refused by the caller, who knows the words for it
        end = start + 4
        length = int.from_bytes(raw[start:end], "little")
        if end > len(raw) or length > len(raw) - end:
            raise Refusal(422, f"The binary data of '{name}' ends within an element.")
        try:
            found.append(raw[end : end + length].decode("utf-8"))
        except UnicodeDecodeError:
            raise Refusal(422, f"Element {len(found)} of '{name}' is not UTF-8.") from None
        start = end + length
    return found


def _raw(values: Sequence[Any], datatype: str) -> bytes:
    """An output's bytes: BYTES or FP32, in row-major order."""
    if datatype == "BYTES":
        parts = [value.encode("utf-8") for value in values]
        return b"".join(struct.pack("<I", len(part)) + part for part in parts)
    return np.asarray(values, "<f4").tobytes()
