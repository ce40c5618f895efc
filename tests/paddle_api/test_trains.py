"""`train()` and `evaluate()` are transformers' own, with a criterion or without, on rows of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from transformers import AutoTokenizer

from live import arguments, both_ends, folder, load, pointed, pointers, trainer
from tersely import CompressionArguments, PdArgumentParser, Trainer, UserError


def test_tuples_train_and_evaluate(tmp_path: Path) -> None:
    model, _ = load(folder(tmp_path / "model"))
    torch.manual_seed(0)
    ids, labels = torch.randint(5, 100, (16, 6)), torch.randint(0, 3, (16,))
    rows = TensorDataset(ids, torch.ones_like(ids), labels)
    live_trainer = trainer(model, arguments(tmp_path / "out", max_steps=1), train_dataset=rows, eval_dataset=rows)
    live_trainer.train()
    model.eval()
    with torch.no_grad():
        wanted = nn.functional.cross_entropy(model(ids).logits, labels).item()
    assert live_trainer.evaluate()["eval_loss"] == pytest.approx(wanted, abs=1e-4)


def test_a_criterion_over_two_outputs_trains_and_evaluates(tmp_path: Path) -> None:
    model, tokenizer = pointers(folder(tmp_path / "model")), AutoTokenizer.from_pretrained(tmp_path / "model")
    rows = pointed(tokenizer, 8)
    args = arguments(tmp_path / "out", max_steps=1, label_names=["start_ids", "end_ids"])
    live_trainer = trainer(model, args, train_dataset=rows, eval_dataset=rows, tokenizer=tokenizer, criterion=both_ends)
    before = model.start.weight.detach().clone()
    live_trainer.train()
    assert not torch.equal(before, model.start.weight)
    batch = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    model.eval()
    with torch.no_grad():
        outputs = model(batch["input_ids"], batch["token_type_ids"])
    wanted = both_ends(outputs, (batch["start_ids"], batch["end_ids"])).item()
    found: Any = live_trainer.evaluate()
    assert found["eval_loss"] == pytest.approx(wanted, abs=1e-5)


def test_arguments_come_as_the_parser_gives_them(tmp_path: Path) -> None:
    model, tokenizer = load(folder(tmp_path / "model"))
    words = ["--output_dir", str(tmp_path / "out"), "--report_to", "none", "--tensor_names", "input_ids", "labels"]
    parsed = PdArgumentParser(CompressionArguments).parse_args_into_dataclasses(words)
    live_trainer = Trainer(model=model, args=parsed, tokenizer=tokenizer)
    assert live_trainer.args is parsed[0]
    assert live_trainer.args.tensor_names == ["input_ids", "labels"]
    assert live_trainer.processing_class is tokenizer


def test_a_batch_without_the_labels_that_a_criterion_needs(tmp_path: Path) -> None:
    model, _ = load(folder(tmp_path / "model"))
    live_trainer = trainer(model, arguments(tmp_path / "out"), criterion=nn.CrossEntropyLoss())
    with pytest.raises(UserError, match="The criterion needs 'labels', which a batch lacks"):
        live_trainer.compute_loss(model, {"input_ids": torch.ones(1, 2)})
