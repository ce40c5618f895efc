"""The rooms are few, import downwards only, and what deploys imports neither torch nor transformers."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tersely
from house import House

HOUSE = House(Path(tersely.__file__).parent)
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_layers_import_downwards_only():
    done = subprocess.run(["lint-imports", "--no-cache"], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout


def test_rooms_are_at_most_27_in_at_most_12_layers_and_each_stands_in_one():
    settings = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"(?m)^layers = (\[\n.*?^\])", settings, re.DOTALL)
    layers = ast.literal_eval(listed)
    assert len(layers) <= 12
    assert len(HOUSE.rooms) <= 27
    named = [name for layer in layers for name in re.findall(r"tersely\.(\w+)", layer)]
    assert sorted(named) == sorted(HOUSE.rooms)


def test_the_longest_chain_of_rooms_has_at_most_11():
    assert len(HOUSE.longest_chain) <= 11, " > ".join(HOUSE.longest_chain)


def test_no_class_name_is_used_twice():
    assert {name: places for name, places in HOUSE.classes.items() if len(places) > 1} == {}


def test_a_house_is_what_its_files_import(tmp_path):
    """A package by hand: with names of other packages, relative imports, types alone and a second class of one name."""
    files = {
        "__init__.py": "from .top import Thing",
        "top/__init__.py": "from ..middle import part\nclass Thing: ...",
        "middle/__init__.py": "",
        "middle/part.py": "def late():\n    from ..bottom import Thing\n",
        "bottom.py": "import rich.top\nfrom os import path\nif TYPE_CHECKING:\n    from . import top\nclass Thing: ...",
    }
    for name, text in files.items():
        (tmp_path / "house" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "house" / name).write_text(text)
    house = House(tmp_path / "house")
    assert house.imports == {"top": {"middle"}, "middle": {"bottom"}, "bottom": set()}
    assert house.longest_chain == ["top", "middle", "bottom"]
    assert house.classes == {"Thing": ["house.bottom", "house.top"]}
    (tmp_path / "house" / "bottom.py").write_text("from house.top import Thing")
    with pytest.raises(ValueError, match="in a circle"):
        _ = House(tmp_path / "house").longest_chain


LIGHT = (
    "tersely", "tersely.cli", "tersely.runtime", "tersely.deploy.systems", "tersely.measure.score", "tersely.data",
    "tersely.models.convert", "tersely.report", "tersely.bulk", "tersely.serve.run", "tersely.serve.workers",
)  # fmt: skip


@pytest.mark.parametrize("module", LIGHT)
def test_importing_brings_no_training_library(module):
    heavy = "{'torch', 'transformers', 'openvino', 'onnx', 'datasets', 'pandas', 'ray', 'pyarrow'}"
    code = f"import sys, {module}; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_picture_of_the_house_is_as_the_script_draws_it(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "docs")
    import draw_house

    assert draw_house.PICTURE.read_text(encoding="utf-8") == draw_house.draw(), "run: make docs"
    drawn = {room for layer in draw_house.layers() for room in layer}
    assert {room for room, _ in draw_house.WAY} <= drawn
