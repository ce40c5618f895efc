"""Fine-tuning on two processes from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from children import TORCHRUN, environment
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
        [sys.executable, *TORCHRUN, "-m", "tersely", "finetune", "--model_name_or_path",
         str(tiny(tmp_path / "encoder")), *map(str, words), "--output_dir", "out"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240, env=environment(),
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    model, tokenizer = load_module(tmp_path / "out"), AutoTokenizer.from_pretrained(tmp_path / "out")
    with torch.inference_mode():
        answers = [model(**tokenizer(row["text"], return_tensors="pt")).logits.argmax().item() for row in made[32:]]
    right = [model.config.id2label[answer] == row["label"] for answer, row in zip(answers, made[32:], strict=True)]
    assert json.loads(child.stdout)["score"] == sum(right) / 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev.jsonl", "encoder", "out", "train.jsonl"]
