"""The Hub's protocol on this machine: a server with repositories of bytes, and a process that loads from it.

`HF_ENDPOINT` is read when huggingface_hub is imported, so that the client is a process of its own; all tests share it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from commands import Ran


@dataclass
class Repository:
    """Files by commit, and what branches and tags mean."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    gated: bool = False


class Hub:
    """Repositories, its requests (`METHOD path`), a file to send by halves, a status to refuse all with."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.held: str | None = None
        self.status: int | None = None
        self.holding, self.go_on = threading.Event(), threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def upload(self, name: str, files: Path | Mapping[str, bytes], revision: str = "main", **rules: Any) -> str:
        """Make a commit of a folder's files, and let the revision mean it; gives the commit."""
        if isinstance(files, Path):
            folder = files
            files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        content = b"".join(f"{name} {len(files[name])} ".encode() + files[name] for name in sorted(files))
        commit = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        repository = self.repositories.setdefault(name, Repository(**rules))
        repository.commits[commit] = dict(files)
        repository.revisions[revision] = commit
        return commit

    def files_sent(self) -> set[str]:
        """Names of the files whose bytes were sent since the last time."""
        found = {
            request.split("/resolve/")[1].partition("/")[2]
            for request in self.requests
            if request.startswith("GET") and "/resolve/" in request
        }
        self.requests.clear()
        return found

    @contextlib.contextmanager
    def hold(self, file: str) -> Iterator[None]:
        """Send half of a file, then set `holding` and wait for `go_on`."""
        self.held = file
        self.holding.clear()
        self.go_on.clear()
        try:
            yield
        finally:
            self.held = None
            self.go_on.set()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            path = urlsplit(self.path).path
            if not (parts := _parts(path)):
                return self.refuse(404, "NotFound")  # what huggingface_hub asks for itself
            if hub.status is not None:
                return self.refuse(hub.status, "Other")
            name, kind, revision, file = parts
            hub.requests.append(f"{self.command} {path}")
            repository = hub.repositories.get(name)
            if repository is None:
                return self.refuse(401, "RepoNotFound")
            commit = repository.revisions.get(revision, revision)
            if commit not in repository.commits:
                return self.refuse(404, "RevisionNotFound")
            files = repository.commits[commit]
            if kind == "revision":
                siblings = [{"rfilename": file} for file in files]
                return self.send(json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode())
            if kind == "tree":
                tree = [{"type": "file", "path": n, "size": len(files[n]), "oid": _oid(files[n])} for n in files]
                return self.send(json.dumps(tree).encode())
            if repository.gated:
                return self.refuse(403, "GatedRepo")
            if file not in files:
                return self.refuse(404, "EntryNotFound")
            return self.send(
                files[file], held=file == hub.held, ETag=f'"{_oid(files[file])}"', **{"X-Repo-Commit": commit}
            )

        def send(self, content: bytes, held: bool = False, **headers: str) -> None:
            self.send_response(200)
            for key, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            with contextlib.suppress(OSError):  # the client was killed
                if held:
                    self.wfile.write(content[: len(content) // 2])
                    self.wfile.flush()
                    hub.holding.set()
                    hub.go_on.wait(60)
                    content = content[len(content) // 2 :]
                self.wfile.write(content)

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler


def _parts(path: str) -> list[str] | None:
    """Repository, what is asked of it, revision, file."""
    found = re.fullmatch(r"(?:/api/models)?/(.+?)/(revision|tree|resolve)/([^/]+)/?(.*)", path)
    return [unquote(part) for part in found.groups()] if found else None


def _oid(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def serve() -> Iterator[Hub]:
    """A Hub on a free port of the loopback."""
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        hub.server.shutdown()
        hub.server.server_close()
        thread.join()


def environment(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """For a process that asks this Hub and no other, without a token or a proxy."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(("HF_", "HUGGING"))}
    return {
        **kept,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        **more,
    }


class Client:
    """Runs `tersely` commands and loads artifacts in one process, whose Hub is the one given."""

    def __init__(self, endpoint: str, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment(endpoint, home),
        )  # fmt: skip

    def tersely(self, cache: Path, *words: str | Path) -> Ran:
        return Ran(**self._ask(argv=[str(word) for word in words], cache=str(cache)))

    def answers(self, cache: Path, address: str, texts: list[str]) -> Any:
        """What `runtime.load(address, threads=1).predict(texts)` says; the text of the error if it raises one."""
        return self._ask(load=address, texts=texts, cache=str(cache))

    def _ask(self, **request: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def _client() -> None:
    from tersely import UserError, runtime
    from tersely.cli import main

    replies = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        os.environ["TERSELY_CACHE"] = request["cache"]
        out, err = io.StringIO(), io.StringIO()
        reply: Any
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if "argv" in request:
                reply = {"code": main(request["argv"]), "out": out.getvalue(), "err": err.getvalue()}
            else:
                try:
                    reply = [
                        answer.as_json()
                        for answer in runtime.load(request["load"], threads=1).predict(request["texts"])
                    ]
                except UserError as error:
                    reply = str(error)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    _client()
