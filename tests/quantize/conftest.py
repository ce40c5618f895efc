"""Small models, exported once for all tests of a session: that takes five seconds and more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest

from made_once import made_once
from models import build


class Small(NamedTuple):
    """A model with layers of 64 and 128 outputs, wide enough to be quantized: its graph and its torch module."""

    proto: Any
    module: Any


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Small]:
    """By family. Not to be changed: copy the graph first."""
    from tersely.graphs.export import export_onnx
    from tersely.graphs.plain import unfold
    from tersely.models.torch_folder import load_module

    made: dict[str, Small] = {}

    def write(folder: Path, family: str) -> None:
        build(folder, family, hidden=64)
        export_onnx(folder, folder / "onnx" / "model.onnx")

    def make(family: str = "bert") -> Small:
        if family not in made:
            folder = made_once(tmp_path_factory, f"small/{family}", lambda place: write(place, family))
            made[family] = Small(unfold(onnx.load(folder / "onnx" / "model.onnx")), load_module(folder))
        return made[family]

    return make
