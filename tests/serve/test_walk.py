"""A reader who follows one request through the code meets few files."""

from __future__ import annotations

import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tersely
from serving import in_thread

PACKAGE = Path(tersely.__file__).parent


@pytest.fixture
def entered():
    """Files of the package whose functions are called, by threads that begin from now on; `clear` it at will."""
    found: set[str] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            found.add(Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix())

    threading.setprofile(profile)
    yield found
    threading.setprofile(None)


def test_a_post_passes_through_at_most_13_files(entered, folders):
    with in_thread({"text": folders["text"]}) as served:
        assert served.ask("/models/text", {"data": {"text": "a fox"}}).status == 200
        entered.clear()
        assert served.ask("/models/text", {"data": {"text": "a fox"}}).status == 200
        passed = set(entered)
    assert {"serve/app.py", "serve/batching.py", "tasks/sequence_classification.py"} <= passed
    assert len(passed) <= 13, sorted(passed)
