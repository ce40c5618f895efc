"""Clients that ask a server on this machine: raw sockets in one thread, which take little of the CPU they measure.

Reads one JSON object from standard input (address, path, bodies, clients, seconds or requests, rate), asks, and writes
one with the counts, latencies by status and what was lost.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import defaultdict
from typing import Any

DRAIN = 35.0
"""Seconds to wait, at the end, for answers that are due."""


class Client:
    """One connection; `began` is when the request was sent that is not answered yet."""

    def __init__(self, place: tuple[str, int]) -> None:
        self.place, self.began, self.buffer = place, 0.0, b""
        self.socket = socket.create_connection(place)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> None:
        self.began = time.perf_counter()
        self.socket.sendall(request)

    def answer(self) -> tuple[int, bool] | None:
        """The status, and whether the connection stays; None: not all is there. Raises where it was closed."""
        received = self.socket.recv(1 << 16)
        if not received:
            raise ConnectionResetError
        self.buffer += received
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        lower = head.lower()
        start = lower.index(b"content-length:") + 15
        end = lower.find(b"\r\n", start)
        if len(body) < int(lower[start : end if end > 0 else None]):
            return None
        self.buffer = b""
        return int(head[9:12]), b"connection: close" not in lower


def requests_of(address: str, path: str, bodies: list[str]) -> list[bytes]:
    host = address.removeprefix("http://")
    texts = [body.encode() for body in bodies]
    head = "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"
    return [head.format(path, host, len(text)).encode() + text for text in texts]


def load(plan: dict[str, Any]) -> dict[str, Any]:
    """Ask for so many seconds, or so many requests: each client anew as soon as it is answered, or at a rate."""
    host, _, port = plan["address"].removeprefix("http://").partition(":")
    requests = requests_of(plan["address"], plan["path"], plan["bodies"])
    clients = [Client((host, int(port))) for _ in range(plan["clients"])]
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
    idle, latencies = list(clients), defaultdict(list)
    sent = lost = 0
    most, rate = plan.get("requests", 1 << 60), plan.get("rate")
    started = time.perf_counter()
    stop = started + plan.get("seconds", 1e9)
    busy = 0
    while True:
        now = time.perf_counter()
        asking = now < stop and sent < most
        if not asking and (not busy or now > stop + DRAIN):
            break
        due = int((now - started) * rate) - sent if rate and asking else len(idle) if asking else 0
        while due > 0 and idle and sent < most:
            client = idle.pop()
            try:
                client.ask(requests[sent % len(requests)])
            except OSError:  # closed before anything was sent
                selector.unregister(client.socket)
                continue
            sent, due, busy = sent + 1, due - 1, busy + 1
        if not selector.get_map():
            break
        for key, _ in selector.select(0.001 if rate else 0.1):
            client = key.data
            try:
                answer = client.answer()
            except OSError:
                # A close while a request is out loses it; of an idle connection it loses nothing.
                lost, busy = (lost + 1, busy - 1) if client.began else (lost, busy)
                if client in idle:
                    idle.remove(client)
                selector.unregister(client.socket)
                continue
            if answer is not None:
                status, stays = answer
                latencies[status].append(time.perf_counter() - client.began)
                client.began, busy = 0.0, busy - 1
                if stays:
                    idle.append(client)
                else:
                    selector.unregister(client.socket)
    seconds = time.perf_counter() - started
    for client in clients:
        client.socket.close()
    return {"sent": sent, "lost": lost, "seconds": seconds, "latencies": latencies}


if __name__ == "__main__":
    json.dump(load(json.load(sys.stdin)), sys.stdout)
