"""One HTTP exchange, close to the wire: a body in, within its limits; an answer out."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from .limits import Limits, Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"


class Gone(Exception):
    """The client has hung up, or was too slow and was cut off: there is nobody to answer."""


async def body_of(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Read the whole body; 413 as soon as it is known to be too large. See `connection` for slow clients."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            if len(value) > 15 or int(value) > limits.max_body:
                raise _too_large(limits)
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise Refusal(415, "Compressed bodies are not taken.")
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limits.max_body:
            raise _too_large(limits)
        return body
    parts, size = [], 0
    while True:
        if message["type"] != "http.request":
            raise Gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limits.max_body:
            raise _too_large(limits)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def header(scope: Scope, wanted: bytes) -> str | None:
    """One header of a request."""
    return next((str(value, "latin-1") for name, value in scope["headers"] if name == wanted), None)


async def send_bytes(send: Send, status: int, body: bytes, content_type: bytes = JSON, more: Headers = ()) -> None:
    """Send an answer."""
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_refusal(send: Send, refusal: Refusal, more: Headers = ()) -> None:
    """Send why there is no answer."""
    headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
    await send_bytes(send, refusal.status, refusal_body(refusal), more=[*headers, *more])


def refusal_body(refusal: Refusal) -> bytes:
    """The JSON that says why there is no answer."""
    # What a client wrote may stand in the line: half a surrogate pair is replaced.
    return json.dumps({"error": refusal.line}, ensure_ascii=False).encode("utf-8", "replace")


def _too_large(limits: Limits) -> Refusal:
    return Refusal(413, f"The body is larger than the {limits.max_body} bytes that are allowed.")
