"""The Open Inference Protocol (v2) over HTTP: texts in as BYTES, labels and scores out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import __version__
from ..errors import nearest
from . import simple, v2_binary
from .limits import Limits, Refusal, checked_text, read_json, shown
from .models import Model
from .simple import Asked

VERSION = "1"
SERVER = {"name": "tersely", "version": __version__, "extensions": ["binary_tensor_data"]}


@dataclass(frozen=True)
class Inference:
    """A request, read: what is asked, the `id` to give back, and the outputs wanted, each in binary or not."""

    asked: Asked
    id: str | None
    outputs: Mapping[str, bool]
    column: bool
    """Whether texts came as [rows, 1]: answers go back so too."""


def metadata(model: Model) -> dict[str, Any]:
    """What `/v2/models/<name>` says."""
    columns = [{"name": name.upper(), "datatype": "BYTES", "shape": [-1]} for name in model.inputs]
    outputs = [
        {"name": name, "datatype": output.datatype, "shape": [-1] if output.width is None else [-1, output.width]}
        for name, output in model.wire.outputs.items()
    ]
    platform = f"tersely_{model.predictor.engine.name}"
    return {"name": model.name, "versions": [VERSION], "platform": platform, "inputs": columns, "outputs": outputs}


def read(
    body: bytes, json_length: str | None, model: Model, schemas: Mapping[str, Mapping[str, Any]], limits: Limits
) -> Inference:
    """Check a request, in JSON or with binary tensors."""
    head, tail = v2_binary.split(body, json_length)
    content = read_json(head)
    if not isinstance(content, dict):
        raise Refusal(422, f"The body must be an object with 'inputs'. Got {shown(content)}.")
    _known(content, ("id", "parameters", "inputs", "outputs"), "The request")
    id_ = content.get("id")
    if id_ is not None:
        id_ = checked_text(id_, "'id'", limits)
    parameters = _object(content.get("parameters"), "'parameters'")
    all_binary = _truth(parameters.pop("binary_data_output", False), "binary_data_output")
    inputs = _tensors(content.get("inputs"), "inputs", ("name", "shape", "datatype", "parameters", "data"))
    for tensor in inputs:
        what = f"'parameters' of '{tensor['name'][:60]}'"
        _known(_object(tensor.get("parameters"), what), ("binary_data_size",), what)
    columns, column = _texts(inputs, v2_binary.take(inputs, tail), model, limits)
    asked = simple.read({"data": columns, "parameters": parameters}, model, schemas, limits)
    wanted = _wanted(content.get("outputs"), tuple(model.wire.outputs), all_binary)
    return Inference(asked, id_, wanted, column)


def answer(model: Model, inference: Inference, answers: Sequence[Any]) -> tuple[bytes, int | None]:
    """The response's body, and the length of its JSON where binary tensors follow."""
    known, found = model.wire.outputs, model.wire.tensors(answers, inference.asked.parameters)
    outputs, raws = [], []
    for name, binary in inference.outputs.items():
        (datatype, width), values = known[name], found[name]
        shape = [len(answers)] if width is None else [len(answers), width]
        if width is None and inference.column:
            shape.append(1)
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if binary:
            raws.append(v2_binary.raw_of(values, datatype))
            entry["parameters"] = {"binary_data_size": len(raws[-1])}
        else:
            entry["data"] = values
        outputs.append(entry)
    content: dict[str, Any] = {"model_name": model.name, "model_version": VERSION, "outputs": outputs}
    if inference.id is not None:
        content["id"] = inference.id
    head = json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return (b"".join([head, *raws]), len(head)) if raws else (head, None)


def _texts(
    inputs: Sequence[Mapping[str, Any]], raws: Mapping[str, bytes], model: Model, limits: Limits
) -> tuple[dict[str, Any], bool]:
    """Texts by the names that the task has for them; whether they stand in a column."""
    known = {name.upper(): name for name in model.inputs}
    columns: dict[str, Any] = {}
    shapes = set()
    for tensor in inputs:
        name = tensor["name"]
        if name not in known:
            raise Refusal(422, f"The model has no input '{name[:60]}'. {nearest(name[:60], known)}")
        if known[name] in columns:
            raise Refusal(422, f"The input '{name}' is there twice.")
        if tensor.get("datatype") != "BYTES":
            raise Refusal(422, f"The input '{name}' must be of datatype BYTES.")
        binary = name in raws
        if binary == ("data" in tensor):
            raise Refusal(422, f"The input '{name}' must have either 'data' or 'binary_data_size'.")
        texts = v2_binary.texts_of(raws[name], name, limits.max_texts) if binary else _flat(tensor["data"], name)
        shape = tensor.get("shape")
        # `[False] == [0]` to Python.
        whole = isinstance(shape, list) and all(type(size) is int for size in shape)
        if not (whole and shape in ([len(texts)], [len(texts), 1])) and len(texts) <= limits.max_texts:
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


def _wanted(outputs: Any, known: Sequence[str], all_binary: bool) -> dict[str, bool]:
    if outputs is None or outputs == []:
        return dict.fromkeys(known, all_binary)
    wanted: dict[str, bool] = {}
    for tensor in _tensors(outputs, "outputs", ("name", "parameters")):
        name = tensor["name"]
        if name not in known:
            raise Refusal(422, f"The model has no output '{name[:60]}'. {nearest(name[:60], known)}")
        parameters = _object(tensor.get("parameters"), f"'parameters' of '{name}'")
        _known(parameters, ("binary_data",), f"'parameters' of '{name}'")
        wanted[name] = _truth(parameters.get("binary_data", all_binary), "binary_data")
    return wanted


def _tensors(value: Any, what: str, entries: Sequence[str]) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise Refusal(422, f"'{what}' must be a list of tensors. Got {shown(value)}.")
    for tensor in value:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise Refusal(422, f"Each of '{what}' must be an object with a 'name'.")
        _known(tensor, entries, f"A tensor of '{what}'")
    return value


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise Refusal(422, f"{what} must be an object. Got {shown(value)}.")
    return dict(value or {})


def _truth(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise Refusal(422, f"The parameter '{name}' must be true or false. Got {shown(value)}.")
    return value


def _known(content: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    for name in content:
        if name not in names:
            raise Refusal(422, f"{what} has no entry '{name[:60]}'. {nearest(name[:60], names)}")
