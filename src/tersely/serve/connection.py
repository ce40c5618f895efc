"""Connections with patience that ends: slow clients are cut off, and a server that drains finishes what it hears.

Heads end too: uvicorn's parser takes a request line and headers of any size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .request import JSON, Refusal
from .server_options import MAX_HEAD

LINGER = 1.0
"""Seconds for which a draining server still listens on open connections: a request may be on its way already."""

CONTINUE = b"HTTP/1.1 100 "
"""How the line begins that asks for a body: it is no answer, and not held back."""

TOO_LARGE = Refusal(431, f"The request line and headers are larger than the {MAX_HEAD} bytes that are allowed.")


class Connection(HttpToolsProtocol):
    """One connection; it waits for a request since `sending`, for its answer to be taken in since `taking`.

    `unparsed`: bytes of a head that has not ended, or in a body of a chunk's size line or of trailers. `refused`: what
    still comes is passed over.
    """

    sending: float | None = None
    taking: float | None = None
    draining = False
    in_head = True
    unparsed = 0
    refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.sending = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Parse what came, and refuse a head that does not end."""
        if self.sending is None and (self.cycle is None or self.cycle.response_complete):
            self.sending = self.loop.time()  # an empty line begins no message, and stops the clock of idle connections
        # In parts, since where a message begins in a part is not known: its bytes there are not counted.
        for start in range(0, len(data), MAX_HEAD):
            if self.refused or self.transport.is_closing():
                return
            part = data[start : start + MAX_HEAD]
            self.unparsed += len(part)
            super().data_received(part)
            if self.unparsed > MAX_HEAD:
                self._refuse()

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a request."""
        super().on_message_begin()
        self.sending = self.loop.time()

    def on_message_complete(self) -> None:
        """The request is there."""
        if self.refused:
            return
        self.sending = None
        self.in_head, self.unparsed = True, 0
        super().on_message_complete()

    def on_chunk_header(self) -> None:
        """A chunk of a body begins, or its trailers."""
        self.unparsed = 0

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body."""
        if not self.refused:
            self.unparsed = 0
            super().on_body(body)

    def pause_writing(self) -> None:
        """The client does not read: begin to wait."""
        self.taking = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        self.taking = None
        super().resume_writing()

    def on_headers_complete(self) -> None:
        """Refuse a head that is too large. Say in the answer, while draining, that the connection ends with it."""
        if self.refused:
            return
        if self._head_size() > MAX_HEAD:
            self._refuse()
            return
        self.in_head, self.unparsed = False, 0
        super().on_headers_complete()
        if self.cycle is None:
            return
        if self.scope["method"] != "HEAD":  # whose answer has no body to wait for
            self.cycle.transport = OneWrite(self.transport)  # type: ignore[assignment]
        if self.draining:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Go on with the next request, or say that it is refused."""
        super().on_response_complete()
        if self.refused and self.cycle.response_complete:
            self._send_refusal()

    def send_400_response(self, msg: str) -> None:
        """Say that this is no HTTP, unless something else was said."""
        if not self.refused:
            super().send_400_response(msg)

    def shutdown(self) -> None:
        """Drain: answer what comes within a moment, then close."""
        self.draining = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(LINGER, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def _head_size(self) -> int:
        """Bytes of a head that is there: `POST url HTTP/1.1`, each `name: value`, an empty line."""
        lines = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n\r\n")
        return lines + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse(self) -> None:
        """Answer 431 after all that was asked before; in the midst of a body there is nothing to be said."""
        if self.refused or self.transport.is_closing():
            return
        if not self.in_head:
            self.transport.abort()
            return
        self.refused, self.sending = True, self.loop.time()
        if self.cycle is None or self.cycle.response_complete:
            self._send_refusal()

    def _send_refusal(self) -> None:
        if self.transport.is_closing():
            return
        body = TOO_LARGE.body()
        headers = [
            *self.server_state.default_headers,
            (b"content-type", JSON),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = [STATUS_LINE[TOO_LARGE.status], *(b"%b: %b\r\n" % header for header in headers), b"\r\n", body]
        self.transport.write(b"".join(lines))
        # Not closed yet: that would reset a client that still sends, before it reads this. See `PatientServer`.
        self.transport.write_eof()


class OneWrite:
    """Where one answer is written: its head waits for its body, so that both leave in one packet.

    uvicorn sends two, and wakes the client twice: 3 % of the throughput of six layers of 384 with eight clients.
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Hold the head, send what follows with it."""
        if self._head is None and not data.startswith(CONTINUE):
            self._head = data
        else:
            self._transport.write((self._head or b"") + data)
            self._head = b"" if self._head is not None else None

    def close(self) -> None:
        """Send what is held, then close."""
        if self._head:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection ends."""
        return self._transport.is_closing()


class PatientServer(Server):
    """uvicorn's server, which looks at its connections once a second and ends where `early_signals` came before it."""

    def __init__(
        self,
        config: Config,
        client_timeout: float,
        on_drain: Callable[[], None],
        on_started: Callable[[], None],
        early_signals: Collection[int],
    ) -> None:
        super().__init__(config)
        self._client_timeout, self._early_signals = client_timeout, early_signals
        self._on_drain, self._on_started = on_drain, on_started

    async def startup(self, sockets: Any = None) -> None:
        """Tell that requests are taken."""
        await super().startup(sockets)
        self._on_started()

    async def on_tick(self, counter: int) -> bool:
        """Cut off who is too slow."""
        if counter % 10 == 0:
            self._cut_off()
        return await super().on_tick(counter) or bool(self._early_signals)

    async def shutdown(self, sockets: Any = None) -> None:
        """Drain; slow clients do not keep the server from ending."""
        self._on_drain()
        watch = asyncio.get_running_loop().create_task(self._watch())
        try:
            await super().shutdown(sockets)
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._cut_off()

    def _cut_off(self) -> None:
        latest = asyncio.get_running_loop().time() - self._client_timeout
        for connection in list(self.server_state.connections):
            waits = (getattr(connection, "sending", None), getattr(connection, "taking", None))
            if any(since is not None and since < latest for since in waits):
                connection.transport.abort()
