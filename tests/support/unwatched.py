"""Coverage looks away while torch exports, and in slow tests that repeat what quick ones run.

Before Python 3.12 it follows every call of every library: a watched export takes almost twice as long (6.9 instead of
3.8 seconds on one core), and so do trainings of tiny models.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

REPEATING = tuple(
    f"tests/{name}/" for name in ("compression", "engines", "models", "graphs", "prune", "qat", "runtime")
)
"""Where slow tests run on other families, tasks or engines what quick tests run on one."""


def repeats(item: pytest.Item) -> bool:
    """Whether a test need not be watched."""
    return item.get_closest_marker("slow") is not None and item.nodeid.startswith(REPEATING)


@contextmanager
def unwatched() -> Iterator[None]:
    """Without the trace function that is set, if there is one."""
    watcher = sys.gettrace()
    if watcher is None:
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(watcher)
        _called()


def _called() -> None:
    """A first call after it is back: only then does coverage see lines of the functions outside again."""


def leave_exports_unwatched() -> None:
    """Wrap torch's exporter, if torch is there at all."""
    onnx = getattr(sys.modules.get("torch"), "onnx", None)
    if onnx is None:
        return
    export = onnx.export

    @wraps(export)
    def call(*arguments: Any, **named: Any) -> Any:
        with unwatched():
            return export(*arguments, **named)

    onnx.export = call
