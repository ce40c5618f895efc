"""One export per family and head for all tests of a session: each takes five seconds and more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from made_once import made_once
from models import build

# ERNIE 3.0 adds a task embedding that forward fills in by itself; let the tests see it.
OVERRIDES: dict[str, dict[str, object]] = {"ernie": {"use_task_id": True}}


class Exported(NamedTuple):
    family: str
    folder: Path
    graph: Path


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Exported]:
    from tersely.graphs.export import export_onnx

    def export(family: str, head: str = "SequenceClassification") -> Exported:
        def write(folder: Path) -> None:
            build(folder, family, head, **OVERRIDES.get(family, {}))
            export_onnx(folder, folder / "onnx" / "model.onnx")

        folder = made_once(tmp_path_factory, f"graphs/{family}-{head}", write)
        return Exported(family, folder, folder / "onnx" / "model.onnx")

    return export
