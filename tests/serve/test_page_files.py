"""The page's files, without a browser: served with their types, made of nothing from elsewhere, part of the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from models import build_tokenizer
from tersely.artifact import read
from tersely.runtime import load
from tersely.runtime.predictor import pad
from tersely.serve.app import App
from tersely.serve.models import examples_for, languages, open_model, takes_pairs
from tersely.serve.server_options import Limits
from tersely.tasks import Encoder
from tiny_artifacts import TASKS, make, rewrite_probe

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "src/tersely/serve/page").iterdir())
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = make(tmp_path_factory.mktemp("page") / "text")
    app = App({"text": open_model("text", folder, threads=1)}, Limits(), api_key="secret")
    yield TestClient(app)
    app.close()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_files_are_served_without_a_key_and_let_nothing_in(client, file):
    answer = client.get("/" if file.name == "index.html" else f"/{file.name}")
    assert answer.content == file.read_bytes()
    assert answer.headers["content-type"].split(";")[0] == TYPES[file.suffix]
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_comes_from_elsewhere(file):
    text = file.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert re.findall(r"(?:[a-z]+:)?//[\w.-]+\.\w+|@import|url\(", text) == []
    # Texts go in as text nodes: with none of these there is no way from a text to markup.
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|srcdoc", text) == []


def test_all_that_the_page_names_is_there():
    names = {file.name for file in FILES}
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= names
        assert set(re.findall(r'(?:href|src)="([\w.]+\.(?:css|js|svg))"', text)) <= names
    ids = re.findall(r'\bid="([^"]+)"', (ROOT / "src/tersely/serve/page/index.html").read_text(encoding="utf-8"))
    assert set(re.findall(r'\bat\("([^"]+)"\)', (ROOT / "src/tersely/serve/page/page.js").read_text())) <= set(ids)


@pytest.mark.parametrize("kind", TASKS)
def test_examples_are_answered(kind, tmp_path):
    predictor = load(make(tmp_path / kind, kind), threads=1)
    found = examples_for(predictor.task, predictor.encoder)
    assert len(found) >= 2
    assert len(predictor.predict([dict(example) for example in found])) == len(found)


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        (("the fox and the dog", "rain over the hills"), ("en",)),
        (("今天天气很好", "北京是首都"), ("zh",)),
        (("the fox and the dog near the old river bank rose on friday", "北京"), ("en", "zh")),
    ],
)
@pytest.mark.parametrize("family", ["bert", "xlm_roberta"])
def test_the_vocabulary_tells_the_language(tmp_path, family, sentences, expected):
    build_tokenizer(tmp_path, family, sentences=sentences)
    assert languages(Encoder.from_file(tmp_path / "tokenizer.json", 0)) == expected


@pytest.mark.parametrize(
    ("family", "inputs", "expected"),
    [
        ("bert", ["one text", "another"], False),
        ("bert", [("one", "two"), ("three", "four")], True),
        ("bert", ["one text", ("a", "pair")], None),
        ("roberta", [("one", "two"), ("three", "four")], None),  # its pairs have one token type
    ],
)
def test_the_probe_tells_whether_texts_come_in_pairs(tmp_path, family, inputs, expected):
    task, folder = TASKS["text"], make(tmp_path / "text")
    build_tokenizer(folder, family)
    encoder = Encoder.from_file(folder / "tokenizer.json", 0)
    batch = pad(task.features(task.examples(inputs), encoder), 0)
    rewrite_probe(folder, {**batch, "logits_fp32": np.zeros((len(inputs), 3), np.float32)})
    assert takes_pairs(read(folder), encoder) is expected


def test_examples_of_a_model_for_pairs_are_pairs(tmp_path):
    build_tokenizer(tmp_path, "bert")
    encoder = Encoder.from_file(tmp_path / "tokenizer.json", 0)
    for pairs in (True, False):
        assert {"text_pair" in example for example in examples_for(TASKS["text"], encoder, pairs=pairs)} == {pairs}


@pytest.mark.slow
def test_the_page_is_in_the_wheel(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = "from setuptools import build_meta; build_meta.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {f"tersely/serve/page/{file.name}" for file in FILES} <= packed
