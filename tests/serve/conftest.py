"""One server with a model for each task, for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tiny_artifacts
from browsing import Tab, browsing, make_models
from serving import Served, in_thread
from tersely.serve.server_options import Limits

LIMITS = Limits(max_body=200_000, max_texts=32, max_text_length=5_000, max_queue=64, client_timeout=1.0)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An artifact of each kind of task, by the name that it is served under."""
    made = {}
    for kind in tiny_artifacts.TASKS:
        made[kind] = tiny_artifacts.make(tmp_path_factory.mktemp("served") / kind, kind)
    return made


@pytest.fixture(scope="session")
def server(folders: dict[str, Path]) -> Iterator[Served]:
    """All of them, served with low limits."""
    with in_thread(folders, LIMITS) as served:
        yield served


@pytest.fixture(scope="session")
def page_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Artifacts for the page, some of them in both precisions."""
    return make_models(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def page_address(page_folders: dict[str, Path]) -> Iterator[str]:
    """Where the page with all of them is."""
    with in_thread(page_folders, Limits(max_text_length=2000)) as served:
        yield served.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, or a skip. Not for the session: while it runs, no other test could run an event loop."""
    with browsing() as opened:
        yield opened


@pytest.fixture
def tab(browser: Any, page_address: str) -> Iterator[Tab]:
    """A tab of it, which must not complain and must not ask anybody but the server."""
    opened = Tab(browser, page_address)
    yield opened
    opened.context.close()
    assert opened.complaints == []
    assert {url for url in opened.requests if not url.startswith(f"{page_address}/")} == set(), (
        "a request left the host"
    )
