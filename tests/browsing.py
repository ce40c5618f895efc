"""What tests of the page share: a server with small models of every task, and Debian's chromium in front of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from laconic.engines.engine import Engine
from laconic.serve.app import App
from laconic.serve.limits import Limits
from laconic.serve.models import open_model
from laconic.serve.run import address_of, bind
from tiny_artifacts import make, make_int8

CHROMIUM = shutil.which("chromium")
# No sandbox: CI runs as root. Nothing but the loopback address resolves, so that whatever wants out fails.
SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def make_models(folder: Path) -> dict[str, Path]:
    """Artifacts by the names that they are served under; two of the tasks in both precisions."""
    found = {
        f"{kind}-fp32": make(folder / f"{kind}-fp32", kind) for kind in ("text", "tags", "question", "labels", "number")
    }
    found |= {f"{kind}-int8": make_int8(folder / f"{kind}-int8", kind) for kind in ("text", "tags")}
    return found


@contextmanager
def serving(folders: dict[str, Path], *options: str) -> Iterator[str]:
    """`laconic serve` on a free port; gives its address."""
    words = [f"{name}={folder}" for name, folder in folders.items()]
    command = [sys.executable, "-m", "laconic", "serve", *words, "--port", "0", "--threads", "1", "--workers", "1"]
    server = subprocess.Popen([*command, "--json", *options], stdout=subprocess.PIPE, text=True, env=os.environ)
    assert server.stdout is not None
    try:
        yield json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")["address"]
    finally:
        server.terminate()
        server.wait(30)


class Held:
    """An engine that answers when it is let go."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.begun, self.let_go = engine, threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def run(self, batch: Any) -> Any:
        self.begun.set()
        self.let_go.wait(60)
        return self.engine.run(batch)


@contextmanager
def holding(folder: Path) -> Iterator[tuple[str, Held]]:
    """A server with place for one text, in this process, and its engine, which holds what it is asked."""
    model = open_model("text", folder, threads=1)
    held = Held(model.predictor.engine)
    model = replace(model, predictor=replace(model.predictor, engine=held))
    app = App({"text": model}, Limits(max_queue=1, max_texts=1))
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield address_of(listening), held
    finally:
        held.let_go.set()
        server.should_exit = True
        thread.join(30)
        app.close()


@contextmanager
def browsing() -> Iterator[Any]:
    """A browser, or a skip that says what is missing."""
    if CHROMIUM is None:
        pytest.skip("the page is tested in chromium, which is not installed (apt install chromium)")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright drives the browser (pip install playwright)"
    )
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))
        yield browser
        browser.close()


class Tab:
    """A page, with the addresses that it asked for and what it complained about."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.address, self.asked, self.complaints = address, [], []
        self.context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **settings})
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console", lambda message: self.complaints.append(message.text) if message.type == "error" else None
        )

    def open(self, model: str = "") -> Any:
        self.page.goto(f"{self.address}/#{model}")
        return self.page

    def ask(self, **texts: str) -> Any:
        """Fill in the texts, ask, and wait for the answers of all."""
        for name, text in texts.items():
            self.page.fill(f"#field-{name}", text)
        self.page.click("#go")
        return self.answers()

    def answers(self) -> Any:
        self.page.wait_for_selector("article")
        self.page.wait_for_selector(".waiting", state="detached")
        return self.page.locator("article")
