"""What does not answer texts: health, metrics, what is served, the document, the page. Starlette's part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from . import v2
from .metrics import CONTENT_TYPE, Metrics
from .models import Model
from .page_files import HEADERS, PageFile

_SAID = {
    404: "There is nothing here. Served are: see /models and /openapi.json.",
    405: "This method is not allowed here.",
}


def routes(
    models: Mapping[str, Model],
    metrics: Metrics,
    document: Mapping[str, Any],
    pages: Mapping[str, PageFile],
    hot: Iterable[str],
    ready: Callable[[], bool],
) -> Starlette:
    """Make the application of all routes but the `hot` ones, for which it says which method they take."""

    def readiness() -> Response:
        return JSONResponse({"ready": ready()}, 200 if ready() else 503)

    found: list[BaseRoute] = [
        _get("/healthz", lambda: JSONResponse({"status": "ok"})),
        _get("/readyz", readiness),
        _get("/metrics", lambda: Response(metrics.text(), headers={"content-type": CONTENT_TYPE})),
        _get("/openapi.json", lambda: JSONResponse(document)),
        _get("/models", lambda: JSONResponse([model.as_json() for model in models.values()])),
        _get("/v2", lambda: JSONResponse(v2.SERVER)),
        _get("/v2/health/live", lambda: JSONResponse({"live": True})),
        _get("/v2/health/ready", readiness),
    ]
    for name, model in models.items():
        for version in ("", f"/versions/{v2.VERSION}"):
            found.append(_get(f"/v2/models/{name}{version}", _fixed(v2.metadata(model))))
            found.append(_get(f"/v2/models/{name}{version}/ready", readiness))
    found += [_get(path, _file(page)) for path, page in pages.items()]
    found += [Route(path, _not_here, methods=["POST"]) for path in hot]
    app = Starlette(routes=found, exception_handlers={HTTPException: _refused})
    app.router.redirect_slashes = False
    return app


def _get(path: str, answer: Callable[[], Response]) -> Route:
    async def endpoint(request: Request) -> Response:
        return answer()

    return Route(path, endpoint, methods=["GET"])


def _fixed(content: Any) -> Callable[[], Response]:
    return lambda: JSONResponse(content)


def _file(page: PageFile) -> Callable[[], Response]:
    return lambda: Response(page.content, media_type=page.content_type, headers=HEADERS)


async def _not_here(request: Request) -> Response:
    """Stand for a hot route, whose POST never comes this far."""
    raise HTTPException(404)


async def _refused(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    return JSONResponse({"error": _SAID.get(status, "This request cannot be answered.")}, status, headers=headers)
