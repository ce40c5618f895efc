from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from commands import Tersely

Folder = Callable[..., Path]


@pytest.mark.slow
def test_artifact_is_written_scored_and_answers(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "artifact"
    words: list[Any] = ["export", "--model_name_or_path", model_folder(), "--output_dir", output]
    shown = tersely(*words, "--eval_file", files["text"], "--input_dtype", "int32", "--max_seq_length", "20", "--json")
    assert shown.code == 0, shown.err
    result = shown.json
    assert result["task"] == "sequence_classification"
    assert max(result["max_abs_logit_difference"].values()) <= 1e-4
    evaluated = tersely(
        "evaluate", "--model_name_or_path", model_folder(), "--eval_file", files["text"], "--max_seq_length", "20",
        "--json",
    ).json  # fmt: skip
    assert result["score"]["value"] == pytest.approx(evaluated["score"], abs=1e-12)
    graph = onnx.load(output / "onnx" / "model.onnx", load_external_data=False).graph
    assert {value.type.tensor_type.elem_type for value in graph.input} == {onnx.TensorProto.INT32}
    assert json.loads((output / "tersely.json").read_text())["task"]["max_seq_length"] == 20
    again = tersely(*words)
    assert again.code == 2
    assert "exists and is not empty" in again.err
    over = tersely(*words, "--overwrite_output_dir")
    assert over.code == 0
    assert f"Next: tersely predict {output}" in over.out
    assert "largest difference of a logit from torch: onnxruntime" in over.out
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


@pytest.mark.slow
def test_full_disk_is_said_and_leaves_nothing(model_folder: Folder, tmp_path: Path) -> None:
    """A limit on the size of files makes writes fail as a full disk does."""
    code = (
        "import resource, sys\nfrom tersely.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ["export", "--model_name_or_path", str(model_folder()), "--output_dir", str(tmp_path / "artifact")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
