"""One server with a model for each task, for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny_artifacts
from laconic.serve.limits import Limits
from serving import Served, in_thread

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
