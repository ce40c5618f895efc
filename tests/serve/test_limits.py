"""What clients must not get away with: huge, slow, deep, astray, and without the key."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from serving import in_thread
from tersely.errors import UserError
from tersely.serve.request import Refusal, read_json
from tersely.serve.server_options import DEEPEST, Limits


def test_a_body_that_says_it_is_huge_is_refused_unread(server):
    with server.connect() as wire:
        wire.sendall(b"POST /models/text HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000000\r\n\r\n")
        assert wire.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_huge_body_in_chunks_is_refused(server):
    with server.connect() as wire:
        wire.sendall(b"POST /models/text HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        for _ in range(4):
            wire.sendall(chunk)
        assert wire.recv(4096).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"POST /models/text HT",
        b"POST /models/text HTTP/1.1\r\nhost: x\r\nx: ",
        b'POST /models/text HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{"data"',
    ],
)
def test_clients_that_do_not_go_on_are_cut_off(server, beginning):
    began = time.monotonic()
    with server.connect() as wire:
        wire.sendall(beginning)
        with contextlib.suppress(ConnectionResetError):
            assert wire.recv(4096) == b""
        assert 1 < time.monotonic() - began < 15  # its patience is a second here


def test_an_empty_line_does_not_keep_a_connection(server):
    with server.connect() as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert wire.recv(4096).startswith(b"HTTP/1.1 200 ")
        wire.sendall(b"\r\n")
        wire.settimeout(15)
        with contextlib.suppress(ConnectionResetError):
            assert wire.recv(4096) == b""


def send_until_cut_off(wire, chunk, pause=0.0, times=100_000):
    for _ in range(times):
        wire.sendall(chunk)
        time.sleep(pause)


def test_a_client_that_trickles_is_cut_off(server):
    with server.connect() as wire:
        wire.sendall(b"POST /models/text HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
        with pytest.raises(ConnectionError):
            send_until_cut_off(wire, b" ", pause=0.1, times=200)


def test_a_client_that_does_not_take_its_answers_is_cut_off(server):
    with socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.settimeout(30)
        wire.connect(server.place)
        with pytest.raises(ConnectionError):
            send_until_cut_off(wire, b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n")


@pytest.mark.parametrize("deep", [b"[" * 100_000, b"[" * 20 + b"]" * 20, b'{"a":' * 5000 + b"1" + b"}" * 5000])
def test_deep_json_is_refused(server, deep):
    said = server.ask("/models/text", b'{"data": {"text": ' + deep + b"}}")
    assert said.status == 422


def test_depth_is_counted_exactly():
    def nested(depth):
        return b"[" * depth + b",".join([b"[]"] * 20) + b"]" * depth  # many brackets, one level more than `depth`

    assert read_json(nested(DEEPEST - 1))
    with pytest.raises(Refusal, match="nested more than"):
        read_json(nested(DEEPEST))


@pytest.mark.parametrize(
    "path",
    [
        "/models/../../etc/passwd", "/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/models/..", "/../tersely.json",
        "/models/text/../../tersely.json", "/models//text", "/models/text/", "/page/index.html", "/index.html",
        "/v2/models/..%2f..%2ftext", "/v2/models/text/versions/2", "/models/text%00", "/%2e%2e/pyproject.toml",
        "/models/te%CC%81xt", "//etc/passwd",
    ],
)  # fmt: skip
@pytest.mark.parametrize("body", [None, b'{"data": {"text": "a"}}'])
def test_paths_that_are_not_served_are_not_found(server, path, body):
    said = server.ask(path, body)
    assert said.status in (404, 405)
    assert "error" in said.json


def test_other_methods_are_not_allowed(server):
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        said = server.ask("/models/text", b"{}" if method != "GET" else None, method)
        assert said.status == 405
        assert said.headers["allow"] == "POST"


def test_the_page_may_load_nothing_from_elsewhere(server):
    said = server.ask("/")
    assert said.status == 200
    assert said.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in said.headers["content-security-policy"]
    assert said.headers["x-content-type-options"] == "nosniff"


def test_the_key_is_asked_for_but_by_health_and_page(folders):
    with in_thread({"text": folders["text"]}, api_key="s3cret") as server:
        request = {"data": {"text": "a"}}
        for path in ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/"):
            assert server.ask(path).status == 200
        for path, body in (
            ("/models/text", request),
            ("/models", None),
            ("/metrics", None),
            ("/nope", None),
            ("/v2", None),
        ):
            said = server.ask(path, body)
            assert said.status == 401
            assert said.headers["www-authenticate"] == "Bearer"
        for headers in ({"Authorization": "Bearer s3cret"}, {"X-API-Key": "s3cret"}):
            assert server.ask("/models/text", request, headers=headers).status == 200
        for wrong in ("Bearer s3cre", "Bearer s3crets", "Basic s3cret", "s3cret", "Bearer ", "Bearer \xe9"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert server.ask("/models/text", request, headers=headers).status == 401
        described = server.ask("/openapi.json", headers={"X-API-Key": "s3cret"}).json
        assert described["security"] == [{"key": []}]


@pytest.mark.parametrize(("limits", "line"), [({"max_body": 0}, "max_body"), ({"timeout": float("nan")}, "timeout")])
def test_limits_must_be_limits(limits, line):
    with pytest.raises(UserError, match=line):
        Limits(**limits)


def test_a_request_that_never_fits_the_queue_cannot_be_allowed():
    with pytest.raises(UserError, match="never be taken"):
        Limits(max_texts=300, max_queue=256)
