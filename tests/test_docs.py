"""Every marked block of the docs runs, page by page, in the order in which it stands there."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from laconic_quickly import server, write_command
from models import build

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- run -->\n```(bash|python)\n(.*?)```", re.DOTALL)
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if BLOCK.search(path.read_text(encoding="utf-8"))
)


@pytest.fixture(scope="session")
def laconic_server():
    with server() as address:
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_marked_blocks_run(page, laconic_server, tmp_path):
    write_what_the_docs_name(tmp_path)
    folders = [write_command(tmp_path / ".bin", laconic_server), Path(sys.executable).parent, os.environ["PATH"]]
    path = os.pathsep.join(map(str, folders))
    for language, code in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PATH": path})
        assert done.returncode == 0, f"{code}\n{done.stderr}"


def test_command_reference_is_what_the_code_says():
    sys.path.insert(0, str(ROOT / "docs"))
    import write_reference

    assert write_reference.PAGE.read_text(encoding="utf-8") == write_reference.page(), "run: make docs"


def test_benchmark_page_quotes_the_results():
    sys.path.insert(0, str(ROOT / "docs"))
    import quote_results

    assert quote_results.PAGE.read_text(encoding="utf-8") == quote_results.page(), "run: make docs"


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md")), ids=lambda p: p.name
)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def write_what_the_docs_name(folder: Path) -> None:
    """An encoder, film reviews, sentences with entities, questions: small, but of the real kinds."""
    draw = random.Random(0)  # noqa: S311
    build(folder / "encoder", "bert", hidden=64)  # INT8 pays from 64 outputs on, also of half the width
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
