"""A request line with its headers has an end: 431, and the server keeps nothing of what comes after it."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import pytest

from tersely.serve.server_options import MAX_HEAD

BODY = json.dumps({"data": {"text": "a quick fox"}}).encode()
START = b"POST /models/text HTTP/1.1\r\nhost: here\r\n"
CHUNKED = START + b"transfer-encoding: chunked\r\n\r\n"
MUCH = 64 << 20
CHUNK = 1 << 16


def head(size: int) -> bytes:
    """A good head of so many bytes."""
    start = START + b"content-length: %d\r\nx: " % len(BODY)
    return start + b"y" * (size - len(start) - 4) + b"\r\n\r\n"


def answer(reader):
    """Status, headers and body of the next answer."""
    status = int(reader.readline().split()[1])
    headers = dict(line.decode().lower().rstrip().split(": ", 1) for line in iter(reader.readline, b"\r\n"))
    return status, headers, json.loads(reader.read(int(headers["content-length"])))


def assert_refused(reader):
    status, headers, body = answer(reader)
    assert status == 431
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert body == {"error": f"The request line and headers are larger than the {MAX_HEAD} bytes that are allowed."}
    assert reader.read() == b""


ENDLESS = {
    "path": (b"GET /", b"a"),
    "query": (b"GET /?", b"a=b&"),
    "header's name": (START, b"n"),
    "header's value": (START + b"x: ", b"v"),
    "spaces": (START + b"x:", b" "),
    "headers": (START, b"x: y\r\n"),
    "empty lines": (b"", b"\r\n"),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_head_without_an_end_is_refused(server, kind):
    start, repeated = ENDLESS[kind]
    with server.connect() as wire, wire.makefile("rb") as reader:
        wire.sendall(start + repeated * (1 + MAX_HEAD // len(repeated)))
        assert_refused(reader)
    assert server.ask("/readyz").status == 200


def test_the_document_says_so_of_every_route(server):
    paths = server.ask("/openapi.json").json["paths"]
    large = {"X-Large": "y" * MAX_HEAD}
    assert {"/readyz", "/models/text"} <= set(paths)
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert server.ask(path, method=method.upper(), headers=large).status == 431
            assert "431" in operation["responses"]


@pytest.mark.parametrize("chunks", [1, 5, 100])
def test_the_size_is_counted_exactly(server, chunks, caplog):
    for size, fits in ((MAX_HEAD, True), (MAX_HEAD + 1, False), (4 * MAX_HEAD, False)):
        with server.connect() as wire, wire.makefile("rb") as reader:
            sent = head(size) + BODY
            step = -(-len(sent) // chunks)
            for begin in range(0, len(sent), step):
                wire.sendall(sent[begin : begin + step])
            if fits:
                status, _, body = answer(reader)
                assert (status, list(body)) == (200, ["result"])
            else:
                assert_refused(reader)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_client_that_sends_all_before_it_reads_gets_the_answer(server):
    with server.connect() as wire, wire.makefile("rb") as reader:
        for part in (START, b"x: ", *[b"v" * CHUNK] * 64, b"\r\n\r\n", BODY):
            wire.sendall(part)
        assert_refused(reader)


def test_what_follows_a_refused_head_is_passed_over(server, caplog):
    for more in (b"no request\r\n\r\n", head(100) + BODY, head(2 * MAX_HEAD)):
        with server.connect() as wire, wire.makefile("rb") as reader:
            wire.sendall(head(MAX_HEAD + 1) + BODY + more)
            assert_refused(reader)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_every_request_of_a_connection_has_the_whole_size(server):
    sent = head(MAX_HEAD // 3) + BODY
    with server.connect() as wire, wire.makefile("rb") as reader:
        for count in (1, 1, 1, 1, 8):  # the last ones together
            wire.sendall(sent * count)
            assert [answer(reader)[0] for _ in range(count)] == [200] * count


@pytest.mark.parametrize("last", [START + b"x: " + b"v" * 3 * MAX_HEAD, head(2 * MAX_HEAD)], ids=["open", "whole"])
def test_what_was_asked_before_is_answered_first(server, last):
    with server.connect() as wire, wire.makefile("rb") as reader:
        wire.sendall((head(100) + BODY) * 3 + last)
        assert [answer(reader)[0] for _ in range(3)] == [200] * 3
        assert_refused(reader)


def test_small_chunks_may_have_more_around_them_than_in_them(server):
    text = json.dumps({"data": {"text": "a quick fox"}}) + " " * 20_000
    body = b"".join(b"1;x=y\r\n%c\r\n" % letter for letter in text.encode()) + b"0\r\nx: trailer\r\n\r\n"
    assert len(body) > 2 * MAX_HEAD
    with server.connect() as wire, wire.makefile("rb") as reader:
        wire.sendall(CHUNKED + body)
        assert answer(reader)[0] == 200


def memory() -> int:
    """Bytes that this process, which serves too, has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


AFTER = {
    "head": (START, b"x: " + b"v" * 1019 + b"\r\n"),
    "value": (START + b"x: ", b"v" * 1024),
    "trailers": (CHUNKED + b"0\r\n", b"x: " + b"v" * 1019 + b"\r\n"),
    "trailer": (CHUNKED + b"0\r\nx: ", b"v" * 1024),
    "chunk's extension": (CHUNKED + b"1;x=", b"v" * 1024),
}


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory of the process")
@pytest.mark.parametrize("kind", AFTER)
def test_nothing_is_kept_of_what_has_no_end(server, kind):
    start, repeated = AFTER[kind]
    before = memory()
    with server.connect() as wire:
        with contextlib.suppress(ConnectionError):  # cut off: after the answer, or without one in a body
            wire.sendall(start)
            for _ in range(MUCH // CHUNK):
                wire.sendall(repeated * (CHUNK // len(repeated)))
        assert memory() - before < MUCH // 4
    assert server.ask("/readyz").status == 200


@pytest.mark.parametrize("kind", ["trailers", "trailer", "chunk's extension"])
def test_a_body_whose_framing_has_no_end_is_cut_off(server, kind):
    start, repeated = AFTER[kind]
    with server.connect() as wire, contextlib.suppress(ConnectionError):
        wire.sendall(start)
        for _ in range(MUCH // CHUNK):
            wire.sendall(repeated * (CHUNK // len(repeated)))
        pytest.fail("all of it was taken")
