"""What a trainer cannot compress is refused before any work: what was expected, what came, what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import TrainingArguments

from live import arguments, both_ends, folder, load, pointed, pointers, trainer
from tersely import CompressionArguments, Trainer, UserError

ROW = {"input_ids": [2, 7, 3], "attention_mask": [1, 1, 1], "labels": 1}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(folder(tmp_path_factory.mktemp("bad") / "model"))


def refused(live_trainer: Trainer, said: str, **how: Any) -> None:
    with pytest.raises(UserError) as caught:
        live_trainer.compress(**how)
    assert said in str(caught.value)
    assert not Path(live_trainer.args.output_dir).exists() or not any(Path(live_trainer.args.output_dir).iterdir())


@pytest.mark.parametrize(
    ("strategy", "datasets", "said"),
    [
        ("prune_embeddings+ptq", {"train_dataset": [ROW], "eval_dataset": [ROW]}, "datasets are tokenized already"),
        ("dynabert+ptq", {"eval_dataset": [ROW]}, "Give the Trainer one or write strategy='ptq'"),
        ("ptq", {"train_dataset": [ROW]}, "The strategy 'ptq' needs an eval_dataset."),
        ("ptq", {}, "The strategy 'ptq' needs an eval_dataset."),
        ("ptq", {"eval_dataset": {"a": [ROW], "b": [ROW]}}, "needs one eval_dataset"),
        ("ptq", {"eval_dataset": []}, "The eval_dataset has no rows."),
        ("dynamic", {"eval_dataset": [ROW], "unlabelled_dataset": [ROW]}, "'unlabelled_dataset' option has no effect"),
        ("ptq", {"train_dataset": [ROW], "eval_dataset": [ROW], "unlabelled_dataset": [ROW]}, "beside training rows"),
        ("qat", {"eval_dataset": [ROW], "unlabelled_dataset": [ROW]}, "alone: importance='teacher', label_loss=0"),
        ("prune+dynabert", {"unlabelled_dataset": [ROW]}, "The strategy 'prune+dynabert' needs an eval_dataset."),
        ("ptq", {"eval_dataset": [ROW], "unlabelled_dataset": []}, "The unlabelled_dataset has no rows."),
        ("ptq", {"eval_dataset": [ROW], "unlabelled_dataset": [{**ROW, "token_type_ids": [0, 0, 0]}]},
         "unlabelled_dataset: Its rows have input_ids, token_type_ids; those of the eval_dataset input_ids. Tokenize"),
        ("dynamic", {"eval_dataset": [{**ROW, "labels": 7}]}, "eval_dataset:1: The label 7 is not one of"),
        ("dynamic", {"eval_dataset": [{k: v for k, v in ROW.items() if k != "labels"}]}, "The row has no 'labels'"),
        ("dynamic", {"eval_dataset": [{"input_ids": [2, 9999, 3], "labels": 1}]}, "forward fails on input_ids"),
    ],
)  # fmt: skip
def test_rows_that_are_missing_or_wrong(parts: Any, tmp_path: Path, strategy: str, datasets: Any, said: str) -> None:
    model, tokenizer = parts
    refused(trainer(model, arguments(tmp_path / "out", strategy), tokenizer=tokenizer, **datasets), said)


def test_other_arguments_are_refused_when_it_compresses_and_not_before(parts: Any, tmp_path: Path) -> None:
    plain = Trainer(model=parts[0], args=TrainingArguments(str(tmp_path), report_to=[]), eval_dataset=[ROW])
    refused(plain, "needs CompressionArguments as its 'args'. Got TrainingArguments")


def test_two_names_for_one_thing_and_no_name_for_two(parts: Any, tmp_path: Path) -> None:
    model, tokenizer = parts
    args = arguments(tmp_path / "out")
    with pytest.raises(UserError, match="two names of one thing"):
        Trainer(model=model, args=args, tokenizer=tokenizer, processing_class="other")
    with pytest.raises(UserError, match="one object as its 'args'"):
        Trainer(model=model, args=(args, args))
    with pytest.raises(UserError, match="criterion must be a function or a module"):
        Trainer(model=model, args=args, criterion=0.5)
    live_trainer = trainer(model, args, eval_dataset=[ROW])
    refused(live_trainer, "two names of one thing", custom_evaluate=len, custom_dynabert_evaluate=len)


def test_functions_that_do_not_fit(parts: Any, tmp_path: Path) -> None:
    live_trainer = trainer(parts[0], arguments(tmp_path / "out"), eval_dataset=[ROW])
    refused(
        live_trainer, "must take (model, dataloader) or (trainer, model, dataloader)", custom_evaluate=lambda model: 1
    )
    refused(live_trainer, "'greater_is_better' has no effect on the task's own metric", greater_is_better=False)
    live_trainer = trainer(parts[0], arguments(tmp_path / "out", metric="f1"), eval_dataset=[ROW])
    refused(live_trainer, "'metric' option has no effect beside 'custom_evaluate'", custom_evaluate=lambda a, b: 1)
    live_trainer = trainer(
        parts[0], arguments(tmp_path / "out", metric="share"), eval_dataset=[ROW], compute_metrics=lambda p: {"a": 1}
    )
    refused(live_trainer, "'compute_metrics' gives no 'share'. It gives: a.")


def test_metrics_that_fail_are_told_with_their_own_words(parts: Any, tmp_path: Path) -> None:
    live_trainer = trainer(parts[0], arguments(tmp_path / "out"), eval_dataset=[ROW], compute_metrics=lambda p: 1 / 0)
    refused(live_trainer, "'compute_metrics' fails on 1 rows: ZeroDivisionError")
    live_trainer = trainer(parts[0], arguments(tmp_path / "out"), eval_dataset=[ROW], compute_metrics=lambda p: 0.5)
    refused(live_trainer, "'compute_metrics' must give numbers by name. Got 0.5.")


def test_a_graph_is_not_a_trainers_model(parts: Any, tmp_path: Path) -> None:
    args = arguments(tmp_path / "out", "ptq", input_infer_model_path="a.onnx")
    refused(trainer(parts[0], args, eval_dataset=[ROW]), "is for a bare graph, not for the trainer's model")


def test_models_of_ones_own_need_what_only_their_owner_knows(parts: Any, tmp_path: Path) -> None:
    model, tokenizer = pointers(folder(tmp_path / "model")), parts[1]
    rows = pointed(tokenizer, 20)
    names = {"label_names": ["start_ids", "end_ids"]}
    both = {"train_dataset": rows, "eval_dataset": rows, "tokenizer": tokenizer}
    args = arguments(tmp_path / "out", "dynabert", **names)
    refused(trainer(model, args, **both), "Give compress(custom_evaluate=…)")
    refused(trainer(model, args, **both), "Give the Trainer a criterion", custom_evaluate=lambda a, b: 1)
    args = arguments(tmp_path / "out", "dynabert", teacher_model_name_or_path="t", **names)
    live_trainer = trainer(model, args, criterion=both_ends, **both)
    refused(live_trainer, "is its own teacher", custom_evaluate=lambda a, b: 1)
    args = arguments(tmp_path / "out", "dynamic", doc_stride=3, **names)
    refused(trainer(model, args, **both), "'doc_stride' option has no effect on a model of your own")


class Square(nn.Module):
    def forward(self, input_ids: Any) -> Any:
        return torch.ones(*input_ids.shape, input_ids.shape[1], 2)


class Blind(nn.Module):
    def forward(self, pixels: Any) -> Any:
        return pixels


def test_outputs_and_inputs_that_no_graph_serves(tmp_path: Path) -> None:
    args = CompressionArguments(str(tmp_path / "out"), strategy="dynamic", report_to=[])
    rows = [{"input_ids": [1, 2, 3]}]
    refused(trainer(Square(), args, eval_dataset=rows), "it gave: logits [1, 3, 3, 2]")
    refused(
        trainer(Blind(), arguments(tmp_path / "out", remove_unused_columns=False), eval_dataset=rows),
        "must take 'input_ids'",
    )


def test_weights_that_are_not_numbers(parts: Any, tmp_path: Path) -> None:
    model, _ = load(folder(tmp_path / "model"))
    model.classifier.weight.data[0, 0] = float("nan")
    refused(trainer(model, arguments(tmp_path / "out"), eval_dataset=[ROW]), "The weight 'classifier.weight' holds NaN")
