"""What mypy finds in a script that calls the public functions and `CompressionArguments` wrongly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SCRIPT = """\
import tersely

right = tersely.compress(
    "model", output_dir="out", train_file=[{"text": "fine", "label": 1}], eval_file="dev.tsv", strategy=["ptq"],
    width_mult_list=[0.75, "1/2"], batch_num_list=[1, None], smooth=0.5, engines="onnxruntime", max_steps=4,
    training_args={"gradient_checkpointing": True}, progress=False,
)
print(right.path / "tersely.json", right.scores["ptq"])
tersely.compress("model", output_dir="out", calibration_rows="many")  # wrong: type
tersely.compress("model", output_dir="out", stategy="ptq")  # wrong: name
tersely.compress("model", output_dir="out", round_type="ada")  # wrong: choice
tersely.compress("model", eval_file="dev.tsv")  # wrong: no output_dir
faster: str = right.speeds  # wrong: type of a result
arguments = tersely.CompressionArguments("out", strategy="ptq", round_type="adaround", algo_list="mse", device="cpu")
tersely.CompressionArguments("out", calibration_rows="many")  # wrong: type
tersely.CompressionArguments("out", cpu_classes="avx2")  # wrong: choice
tersely.evaluate("model", eval_file="dev.tsv", thread=1)  # wrong: name
tersely.evaluate("model", eval_file=3)  # wrong: type
tersely.export("model")  # wrong: no output_dir
tersely.export("model", output_dir="out", input_dtype="int16")  # wrong: choice
tersely.benchmark("model", batch_sizes="1 16", seconds="two")  # wrong: type
tersely.finetune("model", output_dir="out", train_file="t", eval_file="e", training_args=3)  # wrong: type
tersely.evaluate("model", eval_file="dev.tsv", threads=1, metric="f1", progress=False).value + 1.0
"""


@pytest.mark.slow
def test_mypy_finds_every_mistake_of_a_script_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml", "script.py"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache")]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    found = {int(line) for line in re.findall(r"(?m)^script\.py:(\d+): error:", done.stdout)}
    wrong = {number for number, line in enumerate(SCRIPT.splitlines(), 1) if "# wrong" in line}
    assert len(wrong) == 13
    assert found == wrong, done.stdout + done.stderr
