"""Fine-tuning on two processes from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from learnable import LENGTH, jsonl, rows, single, tiny
from tersely.models.torch_folder import load_module


@pytest.mark.slow
def test_two_processes_write_one_model(tmp_path: Path) -> None:
    made = rows(single, 48)
    jsonl(tmp_path / "train.jsonl", made[:32])
    jsonl(tmp_path / "dev.jsonl", made[32:])
    words = ["--task", "sequence_classification", "--max_seq_length", LENGTH, "--per_device_train_batch_size", 4]
    words += ["--train_file", "train.jsonl", "--eval_file", "dev.jsonl", "--max_steps", 2, "--json"]
    child = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "tersely",
         "finetune", "--model_name_or_path", str(tiny(tmp_path / "encoder")), *map(str, words), "--output_dir", "out"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "MASTER_ADDR": "127.0.0.1"},
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    assert json.loads(child.stdout)["score"] >= 0
    assert load_module(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev.jsonl", "encoder", "out", "train.jsonl"]
