"""The ASGI application: who may ask, which route it is, a body in, an answer out, what is counted."""

from __future__ import annotations

import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from . import v2
from .batching import Batcher
from .metrics import Metrics
from .models import ServedModel
from .request import JSON, Refusal, offered, read_json, read_query
from .routes import HEALTH, page_files, routes
from .server_options import Limits

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

_LENGTH = v2.HEADER.lower().encode()

logger = logging.getLogger("tersely.serve")


class App:
    """Models behind HTTP. `ready` turns false when the server drains.

    Routes that answer texts are found in one look, by exact path, and stay close to the wire; Starlette has the rest.
    """

    def __init__(
        self, models: Mapping[str, ServedModel], limits: Limits, api_key: str | None = None, streams: int = 1
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
            infer = InferEndpoint(model, batcher, limits)
            self._hot[f"/models/{name}"] = Endpoint(model, batcher, limits)
            self._hot[f"/v2/models/{name}/infer"] = infer
            self._hot[f"/v2/models/{name}/versions/{v2.VERSION}/infer"] = infer
        pages = page_files()
        # The page asks for the key itself; health is for machines that have none.
        self._open = {*HEALTH, *pages}
        self._rest = routes(models, limits, self._metrics, pages, lambda: self.ready, secured=api_key is not None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path: str = scope["path"]
        if self._key is not None and path not in self._open and not self._knows_key(scope):
            refusal = Refusal(401, "The API key is missing or wrong.", {"www-authenticate": "Bearer"})
            await _send(send, _refused(refusal))
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
        try:
            endpoint.batcher.refuse_if_full()  # before the body is read: a refusal must cost next to nothing
            reply = await endpoint.answer(scope, await _body(scope, receive, self._limits))
        except Refusal as refusal:
            reply = _refused(refusal)
        except Gone:
            return
        except Exception as error:  # the client gets a line, the log the traceback
            logger.error("a request failed", exc_info=error)
            reply = _refused(Refusal(500, "The server failed on this request. Its log says more."))
        seconds = time.perf_counter() - started
        self._metrics.answered(endpoint.model.name, reply.status, seconds)
        await _send(send, reply, (b"x-tersely-milliseconds", b"%.2f" % (1000 * seconds)))

    def _knows_key(self, scope: Scope) -> bool:
        key = _header(scope, b"x-api-key")
        if key is None:
            scheme, _, key = (_header(scope, b"authorization") or "").partition(" ")
            if scheme.lower() != "bearer":
                return False
        # In constant time: how long it takes must not tell how much of a guess is right.
        return hmac.compare_digest(key.strip().encode("latin-1"), self._key or b"")


class Reply(NamedTuple):
    """What goes back."""

    body: bytes
    content_type: bytes = JSON
    headers: Headers = ()
    status: int = 200


class Endpoint:
    """`POST /models/<name>`: one model, asked in SimpleServing's shape."""

    tensors = False

    def __init__(self, model: ServedModel, batcher: Batcher, limits: Limits) -> None:
        self.model, self.batcher, self.limits = model, batcher, limits
        self.schemas = offered(model, tensors=self.tensors)

    async def answer(self, scope: Scope, body: bytes) -> Reply:
        """Answer a request, or raise `Refusal`."""
        query = read_query(read_json(body), self.model, self.schemas, self.limits)
        answers = await self.batcher.answer(query.task, query.examples)
        content = {"result": self.model.wire.result(query.examples, answers, query.parameters)}
        return Reply(json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8"))


class InferEndpoint(Endpoint):
    """`POST /v2/models/<name>/infer`: one model, asked by the Open Inference Protocol."""

    tensors = True

    async def answer(self, scope: Scope, body: bytes) -> Reply:
        """Answer a request, in JSON or with binary tensors, or raise `Refusal`."""
        inference = v2.read(body, _header(scope, _LENGTH), self.model, self.schemas, self.limits)
        answers = await self.batcher.answer(inference.query.task, inference.query.examples)
        content, json_length = v2.answer(self.model, inference, answers)
        if json_length is None:
            return Reply(content)
        return Reply(content, b"application/octet-stream", ((_LENGTH, b"%d" % json_length),))


class Gone(Exception):
    """The client has hung up, or was too slow and was cut off: there is nobody to answer."""


async def _body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Read the whole body; 413 as soon as it is known to be too large. See `connection` for slow clients."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            if len(value) > 15 or int(value) > limits.max_body:
                raise _too_large(limits)
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise Refusal(415, "Compressed bodies are not taken.")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limits.max_body:
            raise _too_large(limits)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _header(scope: Scope, wanted: bytes) -> str | None:
    return next((str(value, "latin-1") for name, value in scope["headers"] if name == wanted), None)


async def _send(send: Send, reply: Reply, *more: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(reply.body))
    headers = [(b"content-type", reply.content_type), length, *reply.headers, *more]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _refused(refusal: Refusal) -> Reply:
    headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
    return Reply(refusal.body(), headers=headers, status=refusal.status)


def _too_large(limits: Limits) -> Refusal:
    return Refusal(413, f"The body is larger than the {limits.max_body} bytes that are allowed.")
