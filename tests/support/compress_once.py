"""A script as users write them: builds a trainer of a live model and compresses. Under torchrun too.

python compress_once.py MODEL OUTPUT STRATEGY …
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import DataCollatorWithPadding

from exported_once import export_once
from live import arguments, classified, load, trainer
from tersely_quickly import time_shortly


def main() -> None:
    """Write a summary of the result to `told-<rank>.json` beside the output folder."""
    time_shortly()
    export_once()
    output = Path(sys.argv[2])
    model, tokenizer = load(Path(sys.argv[1]))
    rows = classified(tokenizer, 64)
    calls = []

    def share(model: Any, loader: Any) -> float:
        """A function that cannot be sent to another process."""
        calls.append(type(model).__name__)
        right = [(model(batch["input_ids"]).argmax(-1) == batch["labels"]).float() for batch in loader]
        return float(torch.cat(right).mean())

    pruning = {"width_mult_list": "1/2", "importance_rows": 8} if "dynabert" in str(sys.argv[3:]) else {}
    args = arguments(
        output, sys.argv[3:], max_steps=3, save_steps=2, per_device_train_batch_size=4, calibration_rows=8,
        learning_rate=1e-3, algo_list="mse", **pruning,
    )  # fmt: skip
    compressor = trainer(
        model, args, tokenizer=tokenizer, data_collator=DataCollatorWithPadding(tokenizer),
        criterion=lambda logits, labels: torch.nn.functional.cross_entropy(logits, labels),
        train_dataset=rows[:32], eval_dataset=rows[32:],
    )  # fmt: skip
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = compressor.compress(share)
    summary = {
        "path": str(result.path), "best": result.best.name, "fp32": result.fp32.score.value, "met": result.met,
        "scores": {candidate.name: candidate.score.value for candidate in result.candidates},
        "untouched": all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items()),
        "metric": result.source.task.metric, "parents": [parent.label for parent in result.parents],
    }  # fmt: skip
    place = output.parent / f"told-{os.environ.get('RANK', '0')}.json"
    place.write_text(json.dumps(summary), encoding="utf-8")
    assert calls


if __name__ == "__main__":
    main()
