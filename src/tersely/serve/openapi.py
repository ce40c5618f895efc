"""The OpenAPI document: every path that is served, with the limits and parameters of each model."""

from __future__ import annotations

from collections.abc import Sequence

from .. import __version__
from ..tasks.wire import Schema, closed
from .limits import Limits
from .models import Model
from .parameters import offered
from .v2 import VERSION

_REFUSALS = {
    "413": "The body is too large.",
    "415": "The body is compressed.",
    "422": "The body is not what the model takes; one line says why.",
    "500": "The model failed.",
    "503": "Too much waits: try again after `Retry-After` seconds.",
    "504": "It took too long.",
}


def document(models: Sequence[Model], limits: Limits, *, secured: bool) -> Schema:
    """Describe the server, as OpenAPI 3.1."""
    paths: Schema = {
        "/healthz": _get("Whether the process lives.", closed({"status": {"const": "ok"}})),
        "/readyz": _get("Whether it takes requests.", closed({"ready": {"type": "boolean"}}), ready=True),
        "/metrics": {"get": {"summary": "Numbers for Prometheus.", "responses": {"200": _content("text/plain", {})}}},
        "/models": _get("What is served.", {"type": "array", "items": {"type": "object"}}),
        "/v2": _get("The server, as the Open Inference Protocol wants it.", {"type": "object"}),
        "/v2/health/live": _get("Whether the process lives.", closed({"live": {"const": True}})),
        "/v2/health/ready": _get("Whether it takes requests.", closed({"ready": {"type": "boolean"}}), ready=True),
    }
    for model in models:
        paths[f"/models/{model.name}"] = {"post": _post(model, _simple_body(model, limits), _simple_result(model))}
        infer = _post(model, _infer_body(model, limits), _infer_result(model))
        # Where an output was asked for in binary.
        infer["responses"]["200"]["content"]["application/octet-stream"] = {"schema": {}}
        for version in ("", f"/versions/{VERSION}"):
            base = f"/v2/models/{model.name}{version}"
            paths[base] = _get("Inputs and outputs of the model.", {"type": "object"})
            paths[f"{base}/ready"] = _get(
                "Whether it takes requests.", closed({"ready": {"type": "boolean"}}), ready=True
            )
            paths[f"{base}/infer"] = {"post": infer}
    for operations in paths.values():
        for operation in operations.values():
            operation["responses"]["431"] = _refusal("The request line and headers are too large.")
    found: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "tersely serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Refusal": closed({"error": {"type": "string"}})}},
    }
    if secured:
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
        for path in ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"):
            paths[path]["get"]["security"] = []
        for operations in paths.values():
            for operation in operations.values():
                if operation.get("security") is None:
                    operation["responses"]["401"] = _refusal("The API key is missing or wrong.")
    return found


def _get(summary: str, schema: Schema, *, ready: bool = False) -> Schema:
    responses = {"200": _content("application/json", schema)}
    if ready:
        responses["503"] = _content("application/json", schema)
    return {"get": {"summary": summary, "responses": responses}}


def _post(model: Model, body: Schema, result: Schema) -> Schema:
    kind = f"{model.wire.kind.replace('_', ' ')}, {model.predictor.engine.precision}"
    return {
        "summary": f"Ask {model.name} ({kind}).",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": _content("application/json", result),
            **{status: _refusal(what) for status, what in _REFUSALS.items()},
        },
    }


def _simple_body(model: Model, limits: Limits) -> Schema:
    text: Schema = {"type": "string", "maxLength": limits.max_text_length}
    texts: Schema = {"anyOf": [text, {"type": "array", "items": text, "maxItems": limits.max_texts}]}
    sentence: Schema = {"type": "array", "items": text}  # of words, with the parameter that says so
    sentences: Schema = {"type": "array", "items": sentence, "maxItems": limits.max_texts}
    names: Schema = {}
    for column in model.task.facts.inputs:
        more = [sentence, sentences] if column.words else []
        names[column.name] = {"anyOf": [*texts["anyOf"], *more, *([{"type": "null"}] if column.optional else [])]}
    needed = [column.name for column in model.task.facts.inputs if not column.optional]
    parameters = {"anyOf": [closed(offered(model), []), {"type": "null"}]}
    return closed({"data": closed(names, needed), "parameters": parameters}, ["data"])


def _simple_result(model: Model) -> Schema:
    return closed({"result": model.wire.result_schema})


def _infer_body(model: Model, limits: Limits) -> Schema:
    text: Schema = {"type": "string", "maxLength": limits.max_text_length}
    tensor = closed(
        {
            "name": {"enum": [name.upper() for name in model.inputs]},
            "datatype": {"const": "BYTES"},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 2},
            "data": {"type": "array", "items": text, "maxItems": limits.max_texts},
            "parameters": {"anyOf": [closed({}), {"type": "null"}]},
        },
        ["name", "datatype", "shape", "data"],
    )
    flag = {"type": "boolean"}
    output = closed(
        {
            "name": {"enum": list(model.wire.outputs)},
            "parameters": {"anyOf": [closed({"binary_data": flag}, []), {"type": "null"}]},
        },
        ["name"],
    )
    parameters = closed({**offered(model, tensors=True), "binary_data_output": {"type": "boolean"}}, [])
    return closed(
        {
            "id": {"type": ["string", "null"]},
            "inputs": {"type": "array", "items": tensor, "minItems": 1, "maxItems": len(model.inputs)},
            "outputs": {"anyOf": [{"type": "array", "items": output}, {"type": "null"}]},
            "parameters": {"anyOf": [parameters, {"type": "null"}]},
        },
        ["inputs"],
    )


def _infer_result(model: Model) -> Schema:
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
    return closed(
        {
            "model_name": {"const": model.name},
            "model_version": {"const": VERSION},
            "id": {"type": "string"},
            "outputs": {"type": "array", "items": tensor},
        },
        ["model_name", "model_version", "outputs"],
    )


def _refusal(what: str) -> Schema:
    return {**_content("application/json", {"$ref": "#/components/schemas/Refusal"}), "description": what}


def _content(kind: str, schema: Schema) -> Schema:
    return {"description": "The answer.", "content": {kind: {"schema": schema}}}
