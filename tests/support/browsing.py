"""What tests of the page share: small models of every task, Debian's chromium, and a tab of it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tersely.engines.engine import Engine
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
        self.address, self.requests, self.complaints = address, [], []
        self.context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **settings})
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("request", lambda request: self.requests.append(request.url))
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


def marks(article: Any) -> Any:
    """Marked stretches, and the text with them as it is read, without the labels that are drawn beside them."""
    return article.evaluate(
        """article => {
          const text = article.querySelector('.text').cloneNode(true);
          text.querySelectorAll('.kind').forEach(kind => kind.remove());
          return [[...text.querySelectorAll('mark')].map(mark => mark.textContent), text.textContent];
        }"""
    )
