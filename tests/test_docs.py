"""Every marked block of the docs runs, page by page, in the order in which it stands there."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from models import build
from paddle_checkpoints import build_paddle
from tersely.artifact import SEAL, Graph, Manifest
from tersely.cli import COMMANDS
from tersely_quickly import PYTHON, server, write_commands

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- run(?: with: ([\w, ]+))? -->\n```(bash|python)\n(.*?)```", re.DOTALL)
CHINESE = sorted([*ROOT.glob("*.zh.md"), *(ROOT / "docs").rglob("*.zh.md")])
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if BLOCK.search(path.read_text(encoding="utf-8")) and path not in CHINESE
)


@pytest.fixture(scope="session")
def tersely_server():
    with server() as address:
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_marked_blocks_run(page, tersely_server, tmp_path):
    write_what_the_docs_name(tmp_path)
    plain = [Path(sys.executable).parent, os.environ["PATH"]]
    quick = [write_commands(tmp_path / ".bin", tersely_server), *plain]
    blocks = [
        (language, code)
        for needs, language, code in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
        if all(name in COMMANDS or shutil.which(name) for name in re.findall(r"\w+", needs))
    ]
    if not blocks:
        pytest.skip("every block needs a program that this machine lacks")
    for language, code in blocks:
        path = os.pathsep.join(map(str, plain if "serve" in code else quick))  # a server is ended by signals
        command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [quick[0] / PYTHON, code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PATH": path})
        assert done.returncode == 0, f"{code}\n{done.stderr}"


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
def test_chinese_pages_show_the_commands_of_the_english_ones(page):
    english = page.with_name(page.name.replace(".zh.md", ".md"))
    ours, theirs = (path.read_text(encoding="utf-8") for path in (page, english))
    assert BLOCK.findall(ours) == BLOCK.findall(theirs)
    assert commands(ours) == commands(theirs) != []


def commands(text: str) -> list[str]:
    """The blocks of code of a page, run or not, without what is translated: comments, and texts that a model reads."""
    blocks = re.findall(r"(?ms)^```(?:bash|python)\n(.*?)^```", text)
    return [re.sub(r'"[^"\n]*[ 。][^"\n]*"', '"text"', re.sub(r"(?m) *#.*$", "", block)) for block in blocks]


SLOW = pytest.mark.slow  # imports torch and transformers


@pytest.mark.parametrize(
    "name", ["commands.md", pytest.param("options.md", marks=SLOW), pytest.param("python.md", marks=SLOW)]
)
def test_reference_is_what_the_code_says(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import write_reference

    written = (write_reference.FOLDER / name).read_text(encoding="utf-8")
    assert written == write_reference.page(name), "run: make docs"


def test_artifact_page_names_every_key():
    """Of tersely.json by its dataclasses, of result.json by the code that writes it."""
    page = (ROOT / "docs" / "reference" / "artifact.md").read_text(encoding="utf-8")
    keys = {field.name for kind in (Manifest, Graph) for field in dataclasses.fields(kind)} | {SEAL}
    writer = ROOT / "src" / "tersely" / "compression" / "report.py"
    for node in ast.walk(ast.parse(writer.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            keys |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
    assert len(keys) > 60
    assert not {key for key in keys if f"`{key}`" not in page}


def test_benchmark_pages_quote_the_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import quote_results

    pages = {path: path.read_text(encoding="utf-8") for path in quote_results.PAGES}
    assert [path.name for path, text in pages.items() if not quote_results.PLACE.search(text)] == ["benchmarks.md"]
    for path, text in pages.items():
        assert text == quote_results.page(path), "run: make docs"


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/index.md", "docs/benchmarks.md"])
def test_figures_of_overviews_are_results(page):
    """A figure in a table of an overview is one of a result, or that rounded."""
    results = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks" / "results").iterdir())
    known = [float(figure) for figure in re.findall(r"\d+\.\d+", results)]
    rows = re.findall(r"(?m)^\|.*\|$", (ROOT / page).read_text(encoding="utf-8"))
    figures = [figure for row in rows for figure in re.findall(r"\d+\.\d+", row)]
    assert figures
    for figure in figures:
        places = len(figure.split(".")[1])
        assert any(abs(number - float(figure)) < 0.5001 * 10**-places for number in known), figure


def write_what_the_docs_name(folder: Path) -> None:
    """Models, film reviews, sentences with entities, questions: small, but of the real kinds."""
    draw = random.Random(0)  # noqa: S311
    build(folder / "encoder", "bert", hidden=64)  # INT8 pays from 64 outputs on, also of half the width
    build_paddle(folder / "my-paddle-model", "ernie")
    good, bad = ("quiet", "moving", "lovely"), ("dull", "long", "lifeless")
    for part in ("reviews", "entities", "questions"):
        (folder / part).mkdir()
        for split, count in (("train", 48), ("dev", 16)):
            if part == "reviews":
                rows = [
                    ("positive", draw.choice(good)) if i % 2 else ("negative", draw.choice(bad)) for i in range(count)
                ]
                lines = ["text\tlabel", *(f"A {word} film, and I mean it.\t{label}" for label, word in rows)]
                (folder / part / f"{split}.tsv").write_text("\n".join(lines) + "\n")
            elif part == "entities":
                names = [draw.choice(("Ada", "Paris", "Lagos")) for _ in range(count)]
                tags = {"Ada": "B-PER", "Paris": "B-LOC", "Lagos": "B-LOC"}
                text = "\n".join(f"We\tO\nsaw\tO\n{name}\t{tags[name]}\n.\tO\n" for name in names)
                (folder / part / f"{split}.txt").write_text(text)
            else:
                content = {"version": "1.1", "data": [{"paragraphs": [_paragraph(draw, i) for i in range(count)]}]}
                (folder / part / f"{split}.json").write_text(json.dumps(content))


def _paragraph(draw: random.Random, number: int) -> dict:
    city = draw.choice(("Paris", "Berlin", "Lagos"))
    context = f"The company moved to {city} in 1998."
    answers = [{"text": city, "answer_start": context.index(city)}]
    return {"context": context, "qas": [{"id": str(number), "question": "Where did it move?", "answers": answers}]}
