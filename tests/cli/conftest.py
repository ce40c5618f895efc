"""The command in this process, and small files for it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from commands import Ran, Tersely
from compressible import Place, write_place
from learnable import conll, question, rows, single, squad, tagged, tsv
from tersely.cli import main


@pytest.fixture
def tersely(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tersely:
    """Run a command in this process: its exit code, standard output and standard error."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # a benchmark sets it; it is put back

    def run(*words: str | Path, stdin: str | bytes | None = None) -> Ran:
        if stdin is not None:
            raw = stdin.encode() if isinstance(stdin, str) else stdin
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = int(stop.code or 0)
        caught = capsys.readouterr()
        return Ran(code, caught.out, caught.err)

    return run


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A model by hand with its graph and rows. Not to be written to."""
    return write_place(tmp_path_factory.mktemp("places") / "stack")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Rows for the models of `model_folder`, one file a task."""
    folder = tmp_path_factory.mktemp("rows")
    texts = rows(single, 30)
    places = [{**row, "tags": [tag.replace("S-", "B-").replace("E-", "I-") for tag in row["tags"]]}
              for row in rows(tagged("BIOES"), 20)]  # fmt: skip
    return {
        "text": tsv(folder / "text.tsv", texts),
        "words": conll(folder / "words.conll", places),
        "question": squad(folder / "question.json", rows(question, 10)),
    }
