"""Every path with its line in the OpenAPI document, and the answers that need no model. Starlette's part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from .. import __version__
from ..tasks.wire import Schema, closed
from . import v2
from .metrics import CONTENT_TYPE, Metrics
from .models import ServedModel
from .request import query_schema
from .server_options import Limits

HEALTH = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
"""What answers without a key."""

PAGE_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
}
"""What a file of the page may be, by its ending."""

PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""Nothing but the server's own files: a script in a text could not run even if it were shown unescaped."""

_REFUSALS = {
    "413": "The body is too large.",
    "415": "The body is compressed.",
    "422": "The body is not what the model takes; one line says why.",
    "500": "The model failed.",
    "503": "Too much waits: try again after `Retry-After` seconds.",
    "504": "It took too long.",
}
_SENTENCES = {
    404: "There is nothing here. Served are: see /models and /openapi.json.",
    405: "This method is not allowed here.",
}

Answer = Callable[[], Response]


class _Path(NamedTuple):
    """A path as the document describes it, and what answers its GET; None: a POST, which the `App` answers itself."""

    operation: Schema
    answer: Answer | None


def routes(
    models: Mapping[str, ServedModel],
    limits: Limits,
    metrics: Metrics,
    pages: Mapping[str, Answer],
    ready: Callable[[], bool],
    *,
    secured: bool,
) -> Starlette:
    """Make the application of all routes; of those that answer texts it only says which method they take."""
    paths = _paths(models, limits, metrics, ready)
    document = _document(paths, secured=secured)
    gets = {path: answer for path, (_, answer) in paths.items() if answer is not None}
    gets |= {"/openapi.json": partial(JSONResponse, document), **pages}
    found: list[BaseRoute] = [Route(path, _endpoint(answer), methods=["GET"]) for path, answer in gets.items()]
    found += [Route(path, _not_here, methods=["POST"]) for path in paths if path not in gets]
    app = Starlette(routes=found, exception_handlers={HTTPException: _refused})
    app.router.redirect_slashes = False
    return app


def page_files() -> dict[str, Answer]:
    """Every file of the page by its path, read once: no path of a request reaches the disk. `index.html` is at `/`."""
    found: dict[str, Answer] = {}
    for file in resources.files(__package__).joinpath("page").iterdir():
        kind = PAGE_TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            found[path] = partial(Response, file.read_bytes(), media_type=kind, headers=PAGE_HEADERS)
    return found


def _paths(
    models: Mapping[str, ServedModel], limits: Limits, metrics: Metrics, ready: Callable[[], bool]
) -> dict[str, _Path]:
    """All paths but the document's own and the page's, in the order of the document."""

    def metrics_text() -> Response:
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    def readiness() -> Response:
        return JSONResponse({"ready": ready()}, 200 if ready() else 503)

    def ready_path() -> _Path:
        content = _content(closed({"ready": {"type": "boolean"}}))
        return _Path(
            {"summary": "Whether it takes requests.", "responses": {"200": content, "503": content}}, readiness
        )

    served = [model.as_json() for model in models.values()]
    metrics_operation = {"summary": "Numbers for Prometheus.", "responses": {"200": _content({}, "text/plain")}}
    found = {
        "/healthz": _get("Whether the process lives.", closed({"status": {"const": "ok"}}), {"status": "ok"}),
        "/readyz": ready_path(),
        "/metrics": _Path(metrics_operation, metrics_text),
        "/models": _get("What is served.", {"type": "array", "items": {"type": "object"}}, served),
        "/v2": _get("The server, as the Open Inference Protocol wants it.", {"type": "object"}, v2.SERVER),
        "/v2/health/live": _get("Whether the process lives.", closed({"live": {"const": True}}), {"live": True}),
        "/v2/health/ready": ready_path(),
    }
    for name, model in models.items():
        result = closed({"result": model.wire.result_schema})
        found[f"/models/{name}"] = _post(model, query_schema(model, limits), _content(result))
        answered = _content(v2.answer_schema(model))
        answered["content"]["application/octet-stream"] = {"schema": {}}  # where an output was asked for in binary
        infer = _post(model, v2.body_schema(model, limits), answered)
        for version in ("", f"/versions/{v2.VERSION}"):
            base = f"/v2/models/{name}{version}"
            found[base] = _get("Inputs and outputs of the model.", {"type": "object"}, v2.metadata(model))
            found[f"{base}/ready"] = ready_path()
            found[f"{base}/infer"] = infer
    return found


def _get(summary: str, schema: Schema, content: Any) -> _Path:
    """A path that always answers the same."""
    return _Path({"summary": summary, "responses": {"200": _content(schema)}}, partial(JSONResponse, content))


def _post(model: ServedModel, body: Schema, answer: Schema) -> _Path:
    kind = f"{model.wire.kind.replace('_', ' ')}, {model.predictor.engine.precision}"
    operation = {
        "summary": f"Ask {model.name} ({kind}).",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": answer, **{status: _refusal(what) for status, what in _REFUSALS.items()}},
    }
    return _Path(operation, None)


def _document(paths: Mapping[str, _Path], *, secured: bool) -> Schema:
    """Describe the server, as OpenAPI 3.1."""
    components: Schema = {"schemas": {"Refusal": closed({"error": {"type": "string"}})}}
    operations = {path: {"get" if answer else "post": operation} for path, (operation, answer) in paths.items()}
    found: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "tersely serve", "version": __version__},
        "paths": operations,
        "components": components,
    }
    for path, (operation, _) in paths.items():
        operation["responses"]["431"] = _refusal("The request line and headers are too large.")
        if secured and path in HEALTH:
            operation["security"] = []
        elif secured:
            operation["responses"]["401"] = _refusal("The API key is missing or wrong.")
    if secured:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
    return found


def _refusal(what: str) -> Schema:
    return {**_content({"$ref": "#/components/schemas/Refusal"}), "description": what}


def _content(schema: Schema, kind: str = "application/json") -> Schema:
    return {"description": "The answer.", "content": {kind: {"schema": schema}}}


def _endpoint(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return answer()

    return endpoint


async def _not_here(request: Request) -> Response:
    """Stand for a path that answers texts, whose POST never comes this far."""
    raise HTTPException(404)


async def _refused(request: Request, error: Any) -> Response:
    sentence = _SENTENCES.get(error.status_code, "This request cannot be answered.")
    return JSONResponse({"error": sentence}, error.status_code, headers=error.headers)
