"""What is released: the sdist and the wheel are built, and the wheel is installed where there is no torch."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from made_once import made_once
from tersely import __version__

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "site", "out", "tersely-demo")
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
HEAVY = {"torch", "transformers", "onnx", "openvino", "datasets", "accelerate"}
FORGET = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")


def run(*words: str | Path, cwd: Path, stdin: str | None = None) -> str:
    """What a command prints; as a shell of its own would start it."""
    environment = {name: value for name, value in os.environ.items() if name not in FORGET}
    done = subprocess.run(words, cwd=cwd, env=environment, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(tree: Path, kind: str, output: Path) -> Path:
    """Build the tree's sdist or wheel with the packages that are here."""
    run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", output, tree, cwd=tree)
    (made,) = output.iterdir()
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `wheel/` and `sdist/`, of a copy of this checkout: building writes into the tree."""

    def write(output: Path) -> None:
        tree = Path(shutil.copytree(ROOT, output / "tree", ignore=LEFT_OUT))
        for kind in ("wheel", "sdist"):
            build(tree, kind, output / kind)

    return made_once(tmp_path_factory, "built", write)


def contents(wheel: Path) -> dict[str, bytes]:
    """The files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def found(version: str) -> Path | None:
    """An interpreter of that version that runs: the one here, one on the path, or one of pyenv's."""
    if version == HERE:
        return Path(sys.executable)
    places = [shutil.which(f"python{version}")]
    places += sorted(map(str, (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")), reverse=True)
    for place in filter(None, places):
        done = subprocess.run([place, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
        if done.returncode == 0:
            return Path(place)
    return None


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (sdist,) = (built / "sdist").iterdir()
    assert sdist.name == f"tersely-{__version__}.tar.gz"
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (wheel,) = (built / "wheel").iterdir()
    again = build(tmp_path / f"tersely-{__version__}", "wheel", tmp_path / "again")
    assert again.name == wheel.name == f"tersely-{__version__}-py3-none-any.whl"
    assert contents(again) == contents(wheel)


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = (built / "wheel").iterdir()
    package = ROOT / "src" / "tersely"
    ours = {
        path.relative_to(package.parent).as_posix(): path.read_bytes()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = contents(wheel)
    about = f"tersely-{__version__}.dist-info/"
    assert {name: packed[name] for name in packed if not name.startswith(about)} == ours
    assert b"Apache License" in packed[f"{about}licenses/LICENSE"]


@pytest.mark.parametrize(
    "version",
    [pytest.param(version, marks=pytest.mark.slow if version == HERE else pytest.mark.long) for version in PYTHONS],
)
def test_the_wheel_alone_answers_scores_and_serves(
    version: str, built: Path, artifact_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """In an empty environment: first the base install, then the extra that serves."""
    python = found(version)
    if python is None:
        pytest.skip(f"Python {version} is not here")
    (wheel,) = (built / "wheel").iterdir()
    run(python, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    folder, commands = artifact_folder(), tmp_path / "venv" / "bin"
    pip = (commands / "python", "-m", "pip", "--disable-pip-version-check")
    tersely = commands / "tersely"
    run(*pip, "install", "--quiet", wheel, cwd=tmp_path)
    run(*pip, "check", cwd=tmp_path)
    packages = {package["name"].lower() for package in json.loads(run(*pip, "list", "--format", "json", cwd=tmp_path))}
    assert {"tersely", "onnxruntime", "tokenizers", "numpy"} <= packages
    assert not HEAVY & packages

    info = json.loads(run(tersely, "info", "--json", cwd=tmp_path))
    assert (info["tersely"], info["python"].startswith(version)) == (__version__, True)
    labels = ("bad", "fair", "good")
    answer = json.loads(run(tersely, "predict", folder, cwd=tmp_path, stdin="A quiet film.\n"))
    assert answer["label"] in labels
    run(tersely, "check", folder, cwd=tmp_path)
    rows = "".join(f"A film, number {i}.\t{label}\n" for i, label in enumerate(labels))
    (tmp_path / "rows.tsv").write_text(f"text\tlabel\n{rows}")
    words = ("evaluate", "--model_name_or_path", folder, "--eval_file", "rows.tsv", "--json")
    assert json.loads(run(tersely, *words, cwd=tmp_path))["rows"] == 3

    run(*pip, "install", "--quiet", f"{wheel}[serve]", cwd=tmp_path)
    run(*pip, "check", cwd=tmp_path)
    assert ask_a_server(tersely, folder, "A quiet film.", tmp_path) == labels.index(answer["label"])


def ask_a_server(tersely: Path, folder: Path, text: str, cwd: Path) -> int:
    """The number of the label that a server of the artifact answers with."""
    words = [tersely, "serve", f"model={folder}", "--port", "0", "--json"]
    environment = {name: value for name, value in os.environ.items() if name not in FORGET}
    with subprocess.Popen(words, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")["address"]
            answer = httpx.post(f"{address}/models/model", json={"data": {"text": [text]}}).raise_for_status()
        finally:
            server.send_signal(signal.SIGINT)
    return int(answer.json()["result"]["label"][0])
