from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import Tersely
from tersely.engines.cpu import cpu

Folder = Callable[..., Path]
QUICK: tuple[Any, ...] = ("--seconds", "0.05", "--lengths", "16")


@pytest.mark.slow
def test_batches_are_timed_on_every_engine_and_thread_count(
    tersely: Tersely, model_folder: Folder, artifact_folder: Folder, tmp_path: Path
) -> None:
    model = model_folder()
    copy = Path(shutil.copytree(artifact_folder(), tmp_path / "packed"))
    shown = tersely("benchmark", model, copy, *QUICK, "--batch_sizes", "1", "2", "--engines", "torch", "onnxruntime",
                    "--baseline", f"{model.name} torch", "--json")  # fmt: skip
    assert shown.code == 0, shown.err
    cells = shown.json["cells"]
    threads = {1, cpu().cores}
    expected = {
        (name, engine, batch, 16, count)
        for name, engine in ((model.name, "torch"), (model.name, "onnxruntime"), ("packed", "onnxruntime"))
        for batch in (1, 2)
        for count in threads
    }
    found = {(cell["model"], cell["engine"], cell["batch"], cell["length"], cell["threads"]) for cell in cells}
    assert found == expected
    assert len(cells) == len(expected)
    for cell in cells:
        low, high = cell["spread"]
        assert cell["seconds"] > 0
        assert low <= cell["ratio"] <= high
        assert (cell["ratio"] == 1.0) == (cell["engine"] == "torch")
    costs = shown.json["footprints"]
    assert len(costs) == 3
    assert all(cost["load_seconds"] > 0 and cost["peak_memory_mb"] > 10 and cost["size_mb"] > 0 for cost in costs)


@pytest.mark.slow
def test_rows_are_timed_beside_the_pipeline(tersely: Tersely, model_folder: Folder, files: dict[str, Path]) -> None:
    words: list[Any] = ["benchmark", model_folder(), "--rows", files["text"], "--engines", "torch", "pipeline"]
    words += ["--batch_sizes", "4", "--seconds", "0.05", "--threads", "1", "--baseline", "pipeline"]
    cells = tersely(*words, "--json").json["cells"]
    assert {(cell["engine"], cell["rows"], cell["batch"]) for cell in cells} == {("torch", 30, 4), ("pipeline", 30, 4)}
    for cell in cells:
        assert cell["rows_per_second"] == pytest.approx(30 / cell["seconds"])
        assert (cell["ratio"] == 1.0) == (cell["engine"] == "pipeline")


@pytest.mark.slow
def test_table_shows_rows_a_second(tersely: Tersely, artifact_folder: Folder, files: dict[str, Path]) -> None:
    words: list[Any] = ["benchmark", artifact_folder(), "--rows", files["text"], "--engines", "onnxruntime"]
    plain = tersely(*words, "--batch_sizes", "4", "--seconds", "0.05")
    assert plain.code == 0
    assert "rows/s" in plain.out
    assert "mixed" in plain.out
    assert "peak MB" in plain.out


@pytest.mark.slow
def test_folders_of_one_name_are_told_apart(tersely: Tersely, artifact_folder: Folder, tmp_path: Path) -> None:
    first, second = (Path(shutil.copytree(artifact_folder(), tmp_path / name / "best")) for name in ("a", "b"))
    words: list[Any] = ["benchmark", first, second, *QUICK, "--batch_sizes", "1", "--threads", "1"]
    cells = tersely(*words, "--engines", "onnxruntime", "--baseline", second, "--json").json["cells"]
    assert [cell["model"] for cell in cells] == [str(first), str(second)]
    assert cells[1]["ratio"] == 1.0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--engines", "pipeline"], "The engine 'pipeline' takes texts, not batches. Give rows with --rows."),
        (["--engines", "tensorrt"], "There is no engine 'tensorrt'."),
        (["--engines", "onxruntime"], "Did you mean 'onnxruntime'?"),
        (["--batch_sizes", "0"], "The '--batch_sizes' option must hold numbers of at least 1. Got 0."),
        (["--lengths", "16", "-3"], "The '--lengths' option must hold numbers of at least 1. Got -3."),
        (["--threads", "0"], "The '--threads' option must hold numbers of at least 1. Got 0."),
        (["--seconds", "0"], "The '--seconds' option must be above 0. Got 0.0."),
        (["--seconds", "nan"], "The '--seconds' option must be above 0."),
        (["--rows", "no-such.tsv"], "no-such.tsv: There is no such file."),
        (["--text_column", "x"], "The '--text_column' option has no effect without --rows."),
        (["--metric", "f1"], "The '--metric' option has no effect without --rows."),
        (["--lengths", "5000", "--engines", "torch"], "The '--lengths' option holds 5000"),
        (["--baseline", "torhc", "--lengths", "8", "--engines", "torch"], "The baseline 'torhc' is none of these."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_timed_is_refused(more: list[str], said: str, tersely: Tersely, model_folder: Folder) -> None:
    shown = tersely("benchmark", model_folder(), *more)
    assert (shown.code, shown.out) == (2, "")
    assert said in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("engines", [["torch"], ["onnxruntime", "torch"], ["pipeline"]])
def test_artifact_is_not_timed_on_torch(
    engines: list[str], tersely: Tersely, artifact_folder: Folder, files: dict[str, Path]
) -> None:
    rows = ["--rows", files["text"]] if "pipeline" in engines else []
    shown = tersely("benchmark", artifact_folder(), "--engines", *engines, *rows)
    assert shown.code == 2
    assert f"An artifact does not run on {engines[-1]}." in shown.err


def test_model_named_twice_is_refused(tersely: Tersely, model_folder: Folder) -> None:
    assert tersely("benchmark", model_folder(), model_folder()).err == (
        "tersely: A model is named twice. Name each once.\n"
    )
