"""What goes over the wire: one packet an answer, and the turns of HTTP that few clients take."""

from __future__ import annotations

import json
import socket
import struct
import sys

import pytest

from tersely.serve.connection import OneWrite

BODY = json.dumps({"data": {"text": "a quick fox"}}).encode()


def request(path="/models/text", body=BODY, method="POST", more=""):
    head = f"{method} {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def answer(reader):
    """Status and body of the next answer; its head alone where it has no body."""
    status = int(reader.readline().split()[1])
    lines = iter(reader.readline, b"\r\n")
    headers = dict(line.decode().lower().rstrip().split(": ", 1) for line in lines)
    return status, headers, lambda: reader.read(int(headers["content-length"]))


def packets(connection):
    """Packets with data that a connection has received: `tcpi_data_segs_in` of Linux' `struct tcp_info`."""
    return struct.unpack_from("I", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232), 152)[0]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how many packets came")
def test_an_answer_is_one_packet(server):
    with server.connect() as connection, connection.makefile("rb") as reader:
        for count in range(1, 6):
            connection.sendall(request())
            status, _, body = answer(reader)
            assert status == 200
            assert json.loads(body())["result"]["label_name"]
            assert packets(connection) == count


@pytest.mark.parametrize("path", ["/healthz", "/nothing", "/"])
def test_head_is_answered_without_a_body(server, path):
    with server.connect() as connection, connection.makefile("rb") as reader:
        connection.sendall(request(path, b"", "HEAD") + request("/readyz", b"", "GET"))
        assert answer(reader)[0] == (404 if path == "/nothing" else 200)
        status, _, body = answer(reader)
        assert (status, json.loads(body())) == (200, {"ready": True})


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(server):
    with server.connect() as connection, connection.makefile("rb") as reader:
        content = request(more="expect: 100-continue\r\n")
        connection.sendall(content.removesuffix(BODY))
        assert reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert reader.readline() == b"\r\n"
        connection.sendall(BODY)
        status, _, body = answer(reader)
        assert status == 200
        assert json.loads(body())["result"]


def test_requests_sent_together_are_answered_in_their_order(server):
    with server.connect() as connection, connection.makefile("rb") as reader:
        connection.sendall(request() + request("/healthz", b"", "HEAD") + request("/models/nope") + request())
        found = []
        for has_body in (True, False, True, True):
            status, _, body = answer(reader)
            found.append((status, "result" in json.loads(body()) if has_body else None))
        assert found == [(200, True), (200, None), (404, False), (200, True)]


class Wire:
    """What asyncio's transport is given."""

    def __init__(self):
        self.sent = []

    def write(self, data):
        self.sent.append(bytes(data))

    def close(self):
        self.sent.append("closed")


def test_a_head_is_not_lost_when_its_body_does_not_come():
    wire = Wire()
    writer = OneWrite(wire)
    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    writer.close()
    assert wire.sent == [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", "closed"]


def test_all_parts_of_a_body_follow_its_head_once():
    wire = Wire()
    writer = OneWrite(wire)
    for part in (b"HTTP/1.1 200 OK\r\n\r\n", b"", b"HTTP/1.1 is a body too", b"last"):
        writer.write(part)
    writer.close()
    assert wire.sent == [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 is a body too", b"last", "closed"]
