"""`Trainer.compress` of live models, transformers' own and one's own, pruned to a speed-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DataCollatorWithPadding

import tersely
from live import arguments, classified, folder, load, pointed, pointers, trainer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_timings")]

ORDER: dict[str, Any] = {"target_speedup": [1.05], "target_batch": 2, "target_length": 12}


def test_a_live_classifier_is_pruned_and_stays_as_it_was(tmp_path: Path) -> None:
    model, tokenizer = load(folder(tmp_path / "model", layers=2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rows = classified(tokenizer, 120)
    args = arguments(tmp_path / "out", "prune", **ORDER)
    collate = DataCollatorWithPadding(tokenizer)
    live_trainer = trainer(
        model, args, tokenizer=tokenizer, data_collator=collate, train_dataset=rows[:80], eval_dataset=rows[80:]
    )
    result = live_trainer.compress()
    shot = result.best.candidate.parent.shot
    assert shot is not None
    assert shot.target == 1.05
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    pruned = tersely.load_model(result.output_dir / "torch" / "speedup_1.05-fp32")
    assert tuple(pruned.config.tersely_shape["heads"]) == shot.shape.heads


def test_a_model_of_ones_own_is_pruned_by_its_outputs_alone(tmp_path: Path) -> None:
    model = pointers(folder(tmp_path / "model", layers=2))
    _, tokenizer = load(tmp_path / "model")
    rows = pointed(tokenizer, 120)
    args = arguments(tmp_path / "out", "prune", label_names=["start_ids", "end_ids"], **ORDER)

    def agreement(network: Any, loader: Any) -> float:
        right = []
        for batch in loader:
            start, _ = network(batch["input_ids"], batch["token_type_ids"])
            right.append((start.argmax(-1) == batch["start_ids"].argmax(-1)).float())
        return float(torch.cat(right).mean())

    live_trainer = trainer(model, args, tokenizer=tokenizer, train_dataset=rows[:80], eval_dataset=rows[80:])
    result = live_trainer.compress(agreement)
    shot = result.best.candidate.parent.shot
    assert shot is not None
    assert result.best.score is not None
    assert shot.change >= 0
