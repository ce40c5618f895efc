"""The ASGI application: who may ask, which route it is, what is counted."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Mapping

from .batching import Batcher
from .endpoints import Endpoint, Infer, Reply, Simple
from .exchange import Gone, Receive, Scope, Send, body_of, header, send_bytes, send_refusal
from .limits import Limits, Refusal
from .metrics import Metrics
from .models import Model
from .openapi import document
from .page_files import page_files
from .routes import routes
from .v2 import VERSION

HEALTH = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")

logger = logging.getLogger("tersely.serve")


class App:
    """Models behind HTTP. `ready` turns false when the server drains.

    Routes that answer texts are found in one look, by exact path, and stay close to the wire; Starlette has the rest.
    """

    def __init__(
        self, models: Mapping[str, Model], limits: Limits, api_key: str | None = None, streams: int = 1
    ) -> None:
        self.ready = True
        self._limits = limits
        self._key = None if api_key is None else api_key.encode("utf-8")
        self._metrics = Metrics({name: lambda name=name: self._batchers[name].waiting for name in models})  # type: ignore[misc]
        self._batchers: dict[str, Batcher] = {}
        self._hot: dict[str, Endpoint] = {}
        for name, model in models.items():
            on_batch = self._metrics.batches(name)
            batcher = self._batchers[name] = Batcher(
                model.predictor, limits, longest=model.longest, streams=streams, on_batch=on_batch
            )
            infer = Infer(model, batcher, limits)
            self._hot[f"/models/{name}"] = Simple(model, batcher, limits)
            self._hot[f"/v2/models/{name}/infer"] = infer
            self._hot[f"/v2/models/{name}/versions/{VERSION}/infer"] = infer
        pages = page_files()
        # The page asks for the key itself; health is for machines that have none.
        self._open = {*HEALTH, *pages}
        described = document(list(models.values()), limits, secured=api_key is not None)
        self._rest = routes(models, self._metrics, described, pages, self._hot, lambda: self.ready)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path: str = scope["path"]
        if self._key is not None and path not in self._open and not self._knows_key(scope):
            refusal = Refusal(401, "The API key is missing or wrong.", {"www-authenticate": "Bearer"})
            await send_refusal(send, refusal)
            return
        endpoint = self._hot.get(path)
        if endpoint is not None and scope["method"] == "POST":
            await self._answer(endpoint, scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    def close(self) -> None:
        """Answer what waits and end the batchers."""
        for batcher in self._batchers.values():
            batcher.close()

    async def _answer(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        found: Reply | Refusal
        try:
            endpoint.batcher.refuse_if_full()  # before the body is read: a refusal must cost next to nothing
            found = await endpoint(scope, await body_of(scope, receive, self._limits))
        except Refusal as refusal:
            found = refusal
        except Gone:
            return
        except Exception as error:  # the client gets a line, the log the traceback
            logger.error("a request failed", exc_info=error)
            found = Refusal(500, "The server failed on this request. Its log says more.")
        seconds = time.perf_counter() - started
        took = (b"x-tersely-milliseconds", b"%.2f" % (1000 * seconds))
        if isinstance(found, Refusal):
            self._metrics.answered(endpoint.model.name, found.status, seconds)
            await send_refusal(send, found, (took,))
        else:
            self._metrics.answered(endpoint.model.name, 200, seconds)
            await send_bytes(send, 200, found.body, found.content_type, (*found.headers, took))

    def _knows_key(self, scope: Scope) -> bool:
        given = header(scope, b"x-api-key")
        if given is None:
            scheme, _, given = (header(scope, b"authorization") or "").partition(" ")
            if scheme.lower() != "bearer":
                return False
        # In constant time: how long it takes must not tell how much of a guess is right.
        return hmac.compare_digest(given.strip().encode("latin-1"), self._key or b"")
