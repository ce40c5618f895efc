"""`Trainer.compress` on models of the user's own: pointers like UIE's, and a class that transformers does not have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoTokenizer, BertConfig, BertModel, PreTrainedModel

from live import arguments, both_ends, folder, load, pointed, pointers, trainer
from tersely import runtime
from tersely.measure.check import check
from tersely.paddle_api import OFA
from tersely.training import distillation
from tersely.training.teacher import open_teacher

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_timings")]
LABELS = ["start_ids", "end_ids"]


def share_right(start: Any, end: Any, row: dict[str, Any]) -> float:
    sides = ((start, row["start_ids"]), (end, row["end_ids"]))
    return float(np.mean([(np.asarray(said) > 0.5) == (np.asarray(gold) > 0.5) for said, gold in sides]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("own")
    model, tokenizer = pointers(folder(place / "model")), AutoTokenizer.from_pretrained(place / "model")
    rows = pointed(tokenizer, 60)
    seen: list[tuple[str, Any]] = []

    def evaluate(self: Any, model: Any, data_loader: Any) -> float:
        """Passes ids and segments by position and no mask, as PaddleNLP's do."""
        assert not isinstance(model, OFA)
        model.eval()
        seen.append((type(model._engine).__name__, self))
        found = []
        for batch in data_loader:
            start, end = model(batch["input_ids"], batch["token_type_ids"])
            for side, name in ((start, "start_ids"), (end, "end_ids")):
                found.append(((side > 0.5) == (batch[name] > 0.5)).float())
        return float(torch.cat(found).mean())

    args = arguments(
        place / "out", ["dynabert+ptq", "dynamic"], label_names=LABELS, max_steps=2, width_mult_list="1/2",
        importance_rows=8, calibration_rows=8, label_loss=0.5, cpu_classes="all",
    )  # fmt: skip
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    live_trainer = trainer(
        model, args, train_dataset=rows[:30], eval_dataset=rows[30:], tokenizer=tokenizer, criterion=both_ends
    )
    result = live_trainer.compress(custom_evaluate=evaluate)
    return {
        "result": result, "model": model, "before": before, "rows": rows[30:], "seen": seen, "trainer": live_trainer,
        "tokenizer": tokenizer, "out": place / "out",
    }  # fmt: skip


def test_the_users_score_is_that_of_the_graph_that_ships(run: dict[str, Any]) -> None:
    assert run["result"].candidates
    for measured in run["result"].candidates:
        engine = runtime.load(run["out"] / "candidates" / measured.name, "onnxruntime").engine
        found = []
        for first in range(0, len(run["rows"]), 8):  # dynamic takes its scales from the batch: the trainer's eight
            rows = run["rows"][first : first + 8]
            ids = np.array([row["input_ids"] for row in rows])
            types = np.array([row["token_type_ids"] for row in rows])
            start, end = engine.run({"input_ids": ids, "token_type_ids": types, "attention_mask": (ids != 0) * 1})
            found += [share_right(*sides) for sides in zip(start, end, rows, strict=True)]
        assert measured.score.value == pytest.approx(np.mean(found), abs=1e-6)
        assert measured.score.interval is None


def test_it_scores_torch_while_widths_are_trained_and_engines_afterwards(run: dict[str, Any]) -> None:
    names = [name for name, _ in run["seen"]]
    assert names[0] == "OnnxRuntimeEngine"
    assert "TorchEngine" in names
    assert names[-2:] == ["OnnxRuntimeEngine"] * 2
    assert all(owner is run["trainer"] for _, owner in run["seen"])


def test_the_fp32_score_is_that_of_the_live_model_with_a_mask(run: dict[str, Any]) -> None:
    model, found = run["model"].eval(), []
    with torch.no_grad():
        for row in run["rows"]:
            ids = torch.tensor([row["input_ids"]])
            start, end = model(ids, torch.tensor([row["token_type_ids"]]), (ids != 0).long())
            found.append(share_right(start[0], end[0], row))
    assert run["result"].fp32.score.value == pytest.approx(np.mean(found), abs=1e-6)
    assert all(torch.equal(tensor, run["before"][name]) for name, tensor in model.state_dict().items())


def test_a_score_of_ones_own_may_fall_by_half_a_percent_between_models(run: dict[str, Any]) -> None:
    result = run["result"]
    assert "0.5 % of FP32's" in result.choice.rule
    within = [
        measured.name
        for measured in result.candidates
        if measured.comparison.drop.drop <= 0.005 * result.fp32.score.value
    ]
    assert within
    assert result.best.name in within


def test_the_artifact_says_what_it_is_and_runs(run: dict[str, Any]) -> None:
    manifest = json.loads((run["result"].path / "tersely.json").read_text())
    assert manifest["task"]["name"] == "own"
    assert manifest["task"]["model_class"] == "Pointers"
    assert manifest["task"]["outputs"] == ["output_0", "output_1"]
    assert manifest["score"]["interval"] is None
    assert "a model of its owner's, a `Pointers`" in (run["result"].path / "README.md").read_text().replace("\n", " ")
    answers = runtime.load(run["result"].path).predict([{"input_ids": [2, 7, 9, 3]}, {"input_ids": [2, 3]}])
    assert [len(answer.as_json()["output_0"]) for answer in answers] == [4, 2]
    assert {replay.verdict for replay in check(run["result"].path)} == {"ok"}


def test_the_pruned_module_is_kept_as_weights_with_its_shape(run: dict[str, Any]) -> None:
    place = run["out"] / "torch" / "width_mult_0.5"
    config = json.loads((place / "config.json").read_text())
    assert config["tersely_shape"]["heads"] == [2, 2]
    assert (place / "model.safetensors").is_file()


class OwnConfig(BertConfig):
    model_type = "of-my-own"


class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(config.hidden_size, 3)
        self.post_init()

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        return self.head(self.encoder(input_ids, attention_mask=attention_mask)[0][:, 0])


def test_a_class_of_ones_own_without_tokenizer_or_score(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = OwnModel(OwnConfig(vocab_size=100, hidden_size=64, num_hidden_layers=1, num_attention_heads=2,
                               intermediate_size=64, max_position_embeddings=32, pad_token_id=0))  # fmt: skip
    rows = [{"input_ids": [5, 6 + i, 7], "attention_mask": [1, 1, 1]} for i in range(40)]
    result = trainer(model, arguments(tmp_path / "out", "ptq", calibration_rows=8), eval_dataset=rows).compress()
    assert result.best.score is None
    assert result.best.comparison.same_answer > 0.5
    engine = runtime.load(result.path).engine
    ids = np.array([row["input_ids"] for row in rows])
    with torch.no_grad():
        wanted = model.eval()(torch.from_numpy(ids)).numpy()
    off = np.abs(engine.run({"input_ids": ids, "attention_mask": np.ones_like(ids)})[0] - wanted).max()
    assert 0 < off < 0.2 * np.abs(wanted).max()


def test_a_class_of_ones_own_is_pruned(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = OwnConfig(vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                       intermediate_size=128, max_position_embeddings=32, pad_token_id=0)  # fmt: skip
    model = OwnModel(config)
    draw = np.random.default_rng(0)
    rows = [
        {"input_ids": draw.integers(5, 99, 6).tolist(), "attention_mask": [1] * 6, "labels": i % 3} for i in range(40)
    ]

    def evaluate(model: Any, loader: Any) -> float:
        found = [(model(b["input_ids"], b["attention_mask"]).argmax(-1) == b["labels"]).float() for b in loader]
        return float(torch.cat(found).mean())

    args = arguments(
        tmp_path / "out", "dynabert", max_steps=2, width_mult_list="1/2", depth_mult_list="1/2", importance_rows=8
    )
    live_trainer = trainer(model, args, train_dataset=rows, eval_dataset=rows, criterion=nn.CrossEntropyLoss())
    result = live_trainer.compress(evaluate)
    assert result.parents[0].pruned.shape.heads == (2,)
    engine = runtime.load(result.path).engine
    ids = np.array([row["input_ids"] for row in rows])
    said = engine.run({"input_ids": ids, "attention_mask": np.ones_like(ids)})[0].argmax(-1)
    assert result.best.score.value == pytest.approx(np.mean(said == [row["labels"] for row in rows]))
    saved = (tmp_path / "out" / "torch" / "width_mult_0.5-depth_mult_0.5" / "config.json").read_text()
    assert json.loads(saved)["model_type"] == "of-my-own"


@pytest.mark.long  # as examples/uie, which `make test` runs
def test_pointers_are_trained_for_int8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = pointers(folder(tmp_path / "model")), AutoTokenizer.from_pretrained(tmp_path / "model")
    rows, engines, widths = pointed(tokenizer, 40), [], []

    def watched(model: Any, *more: Any) -> Any:
        found = open_teacher(model, *more)
        widths.append(
            [module.encoder.encoder.layer[0].attention.self.query.out_features for module in (model, found.module)]
        )
        return found

    monkeypatch.setattr(distillation, "open_teacher", watched)

    def evaluate(model: Any, data_loader: Any) -> float:
        engines.append(type(model._engine).__name__)
        found = [((model(b["input_ids"])[0] > 0.5) == (b["start_ids"] > 0.5)).float() for b in data_loader]
        return float(torch.cat([right.flatten() for right in found]).mean())

    args = arguments(
        tmp_path / "out", ["qat", "dynabert+qat"], label_names=LABELS, max_steps=2, width_mult_list="1/2",
        importance_rows=8, calibration_rows=8, algo_list="mse",
    )  # fmt: skip
    live_trainer = trainer(
        model, args, train_dataset=rows[:20], eval_dataset=rows[20:], tokenizer=tokenizer, criterion=both_ends
    )
    result = live_trainer.compress(evaluate)
    assert {made.name for made in result.candidates} == {"qat", "width_mult_0.5-qat"}
    assert {"TorchEngine"} < set(engines)  # scored while it is trained, and as the graph that ships
    assert widths == [[64, 64], [32, 64]], "a pruned model learns from the unpruned one"
    assert {replay.verdict for replay in check(result.path)} == {"ok"}


def test_without_any_rows_tables_become_int8_and_nothing_is_scored(tmp_path: Path) -> None:
    model, tokenizer = load(folder(tmp_path / "model"))
    result = trainer(model, arguments(tmp_path / "out", "embeddings"), tokenizer=tokenizer).compress()
    assert result.best.score is None
    assert runtime.load(result.path).predict("old river")[0].label


def test_older_keywords_still_work_and_warn(tmp_path: Path) -> None:
    model, tokenizer = load(folder(tmp_path / "model"))
    rows = [{**tokenizer(text, "old river"), "labels": i % 3} for i, text in enumerate(["dark fox", "paris"] * 12)]
    called = []

    def evaluate(model: Any, data_loader: Any) -> float:
        """Paddle's order: segments second."""
        return float(
            np.mean([model(b["input_ids"], b["token_type_ids"]).argmax(-1) == b["labels"] for b in data_loader])
        )

    def calc_loss(loss_fct: Any, model: Any, batch: Any, head_mask: Any) -> Any:
        called.append(sorted(batch))
        logits = model(batch["input_ids"], batch["token_type_ids"], attention_mask=[None, head_mask])
        return loss_fct(logits, batch["labels"])

    args = arguments(
        tmp_path / "out",
        "dynabert",
        max_steps=1,
        width_mult_list="1/2",
        importance_rows=8,
        per_device_eval_batch_size=1,
    )
    live_trainer = trainer(
        model, args, train_dataset=rows, eval_dataset=rows, tokenizer=tokenizer, criterion=nn.CrossEntropyLoss()
    )
    with pytest.warns(DeprecationWarning, match="custom_dynabert_"):
        result = live_trainer.compress(custom_dynabert_evaluate=evaluate, custom_dynabert_calc_loss=calc_loss)
    assert called
    model.eval()
    with torch.no_grad():
        feed = [{k: torch.tensor([v]) for k, v in row.items() if k != "labels"} for row in rows]
        right = [int(model(**inputs).logits.argmax()) == row["labels"] for inputs, row in zip(feed, rows, strict=True)]
    assert result.fp32.score.value == pytest.approx(np.mean(right))
