"""`tersely.compress`: the call as users write it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tersely
from compressible import Place
from tersely.data import read
from tersely.errors import UserError

Places = Callable[..., Place]


def test_rows_in_memory_are_taken_as_well_as_files(place: Places, tmp_path: Path) -> None:
    here = place()
    rows = [{"said": row["text"], "mark": row["label"]} for row in read(here.dev).records]
    result = tersely.compress(
        here.folder, input_infer_model_path=here.graph, eval_file=rows, train_file=rows, output_dir=tmp_path,
        strategy="dynamic", engines=["onnxruntime"], text_column="said", label_column="mark", max_seq_length=20,
    )  # fmt: skip
    assert result.fp32.score is not None
    assert (result.fp32.score.rows, result.fp32.score.value) == (len(rows), 1.0)
    assert tersely.runtime.load(result.path).task.max_seq_length == 20
    with pytest.raises(UserError, match="finished run"):
        tersely.compress(here.folder, input_infer_model_path=str(here.graph), output_dir=tmp_path, strategy="dynamic")


@pytest.mark.parametrize("name", ["overwrite", "overwrite_output_dir"])
def test_an_earlier_result_is_replaced_by_both_names(name: str, place: Places, tmp_path: Path) -> None:
    here = place()
    keywords = {"input_infer_model_path": here.graph, "strategy": "dynamic", "engines": "onnxruntime"}
    for more in ({}, {name: True}):
        tersely.compress(output_dir=tmp_path / "out", **keywords, **more)
    with pytest.raises(UserError, match=r"finished run.*overwrite\."):
        tersely.compress(output_dir=tmp_path / "out", **keywords, **{name: False})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stategy": "ptq"}, "There is no option 'stategy'"),
        ({"max_seq_lenght": 9}, "Did you mean 'max_seq_length'?"),
        ({"strategy": "ptq+dynamic"}, "of which a strategy has one at most"),
        ({"strategy": "dynamic", "smooth": 0.5}, "'smooth' option \\(0.5\\) has no effect"),
        ({"strategy": "ptq"}, "needs rows to calibrate on"),
        ({"strategy": "dynamic", "text_column": "x"}, "'text_column' option has no effect without rows"),
        ({"strategy": "dynamic", "header": True, "eval_file": [{"text": "fine"}]}, "'header' option has no effect"),
        ({"task": "poetry"}, "There is no task 'poetry'"),
        ({"max_seq_length": "long"}, "'max_seq_length' option must be a whole number. Got 'long'."),
        ({"learning_rate": "fast"}, "'learning_rate' option must be a number. Got 'fast'."),
        ({"gradient_checkpointing": True}, "write training_args={'gradient_checkpointing': …}"),
        ({"training_args": {"gradient_chekpointing": True}}, "Did you mean 'gradient_checkpointing'"),
        ({"training_args": {"seed": 1}}, "'seed' option is a parameter of its own"),
        ({"strategy": "ptq", "training_args": {"max_steps": 1}}, "'max_steps' option has no effect"),
    ],
)
def test_mistakes_are_told_before_any_file_is_touched(options: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        tersely.compress("no/such/model", output_dir=tmp_path / "out", **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_naming_it_imports_nothing_heavy() -> None:
    code = "import sys, tersely; assert 'compress' in tersely.__all__; assert 'onnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
