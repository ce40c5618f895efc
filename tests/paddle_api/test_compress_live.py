"""`Trainer.compress` on transformers' own classes: scores by independent references, nothing of the user's changed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from seqeval.metrics import f1_score
from sklearn.metrics import accuracy_score
from torch.utils.data import TensorDataset
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from live import TAGS, arguments, classified, folder, load, texts, trainer
from report_page import check_reports
from tersely import CompressionArguments, PdArgumentParser, runtime
from tersely.artifact import sha256
from tersely.measure.check import check

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_timings")]


def torch_logits(model: Any, tokenizer: Any, rows: list[dict[str, Any]]) -> list[Any]:
    """Logits row by row, without padding, from the live model itself."""
    was = model.training
    model.eval()
    with torch.no_grad():
        inputs = [{k: torch.tensor([row[k]]) for k in tokenizer.model_input_names if k in row} for row in rows]
        found = [model(**batch) for batch in inputs]
    model.train(was)
    return found


def engine_logits(path: Path, rows: list[dict[str, Any]]) -> list[Any]:
    """The same from an artifact's engine."""
    engine = runtime.load(path).engine
    names = ("input_ids", "attention_mask", "token_type_ids")
    return [engine.run({name: np.array([row[name]]) for name in names}) for row in rows]


def state_of_the_world() -> dict[str, Any]:
    return {
        "rng": torch.get_rng_state().tolist(), "numpy": repr(np.random.get_state()), "python": random.getstate(),
        "dtype": torch.get_default_dtype(), "threads": torch.get_num_threads(),
        "verbosity": transformers.logging.get_verbosity(), "forward": transformers.BertModel.forward,
        "grad": torch.is_grad_enabled(),
    }  # fmt: skip


def state_of(model: Any) -> dict[str, Any]:
    return {
        "weights": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "training": [part.training for part in model.modules()],
        "grads": [weight.requires_grad for weight in model.parameters()],
        "hooks": [list(part._forward_hooks) for part in model.modules()],
        "config": model.config.to_dict(),
        "own": sorted(vars(model)),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """train(), then compress() twice, of rows in a `datasets.Dataset`."""
    from datasets import Dataset

    place = tmp_path_factory.mktemp("live")
    model, tokenizer = load(folder(place / "model"))
    rows = classified(tokenizer, 96)
    model.bert.embeddings.requires_grad_(False)
    model.register_forward_hook(lambda *_: None)
    words = [
        "--output_dir",
        str(place / "out"),
        "--strategy",
        "ptq+embeddings",
        "--max_steps",
        "2",
        "--use_cpu",
        "True",
    ]
    words += ["--engines", "onnxruntime", "--algo_list", "mse", "--calibration_rows", "16", "--report_to", "none"]
    args = PdArgumentParser(CompressionArguments).parse_args_into_dataclasses(words)
    live_trainer = trainer(
        model, args, tokenizer=tokenizer, data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=Dataset.from_list(rows[:40]), eval_dataset=Dataset.from_list(rows[40:]),
    )  # fmt: skip
    live_trainer.train()
    before, world = state_of(model), state_of_the_world()
    result = live_trainer.compress()
    after, world_after = state_of(model), state_of_the_world()
    content = json.loads((place / "out" / "result.json").read_text())
    artifact = engine_logits(result.path, rows[40:])
    answers, replays = runtime.load(result.path).predict(["old river"]), check(result.path)
    args.strategy = "ptq"
    again = live_trainer.compress()
    live_trainer.train()
    return {
        "model": model, "before": before, "after": after, "world": world, "world_after": world_after,
        "result": result, "again": again, "content": content, "artifact": artifact, "rows": rows[40:],
        "answers": answers, "replays": replays, "tokenizer": tokenizer, "place": place, "trainer": live_trainer,
    }  # fmt: skip


def test_accuracy_is_that_of_scikit_learn_on_the_live_model_and_on_the_artifact(run: dict[str, Any]) -> None:
    gold = [row["labels"] for row in run["rows"]]
    model = run["model"]
    now = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(run["before"]["weights"])
    said = [int(output.logits.argmax()) for output in torch_logits(model, run["tokenizer"], run["rows"])]
    model.load_state_dict(now)
    assert run["result"].fp32.score.value == accuracy_score(gold, said)
    shipped = [int(logits[0].argmax()) for logits in run["artifact"]]
    assert run["result"].best.score.value == accuracy_score(gold, shipped)
    assert run["result"].best.score.interval is not None
    assert run["content"]["fp32"]["score"] == accuracy_score(gold, said)


def test_the_live_model_is_as_it_was(run: dict[str, Any]) -> None:
    before, after = run["before"], run["after"]
    assert all(torch.equal(tensor, after["weights"][name]) for name, tensor in before["weights"].items())
    for part in ("training", "grads", "hooks", "config", "own"):
        assert before[part] == after[part], part
    assert any(before["training"])
    assert not all(before["grads"])


def test_the_world_is_as_it_was(run: dict[str, Any]) -> None:
    assert run["world"] == run["world_after"]


def test_the_output_has_the_layout_of_compress_and_loads_without_the_trainer(run: dict[str, Any]) -> None:
    assert run["content"]["best"] == "mse16-embeddings"
    assert run["content"]["task"] == "sequence_classification"
    assert run["content"]["rows"]["calibration"] == 16
    assert run["answers"][0].label.startswith("LABEL_")
    assert {replay.verdict for replay in run["replays"]} == {"ok"}
    page = check_reports(run["place"] / "out")
    assert "tersely compress" not in page.text  # it was a script
    assert run["content"]["settings"]["files"] == {"train": "train_dataset", "eval": "eval_dataset"}
    places = run["result"].rows.places  # where a report finds the rows whose answer changed
    assert len(set(places)) == len(run["rows"])
    assert all(place.startswith("eval_dataset:") for place in places)


def test_a_second_compress_replaces_the_first_and_training_goes_on(run: dict[str, Any]) -> None:
    assert [measured.name for measured in run["again"].candidates] == ["mse16"]
    assert sorted(path.name for path in (run["place"] / "out" / "candidates").iterdir()) == ["mse16"]
    assert run["trainer"].evaluate()["eval_loss"] > 0


def test_entity_f1_is_that_of_seqeval(tmp_path: Path) -> None:
    model, tokenizer = load(folder(tmp_path / "model", "TokenClassification"))
    draw = random.Random(0)  # noqa: S311
    rows = []
    for text in texts(40):
        inputs = dict(tokenizer(text))
        inside = [draw.randrange(5) if draw.random() < 0.7 else -100 for _ in inputs["input_ids"][2:]]
        rows.append({**inputs, "labels": [-100, *inside, -100]})
    collator = DataCollatorForTokenClassification(tokenizer)
    args = arguments(tmp_path / "out", "embeddings")
    result = trainer(model, args, eval_dataset=rows, processing_class=tokenizer, data_collator=collator).compress()
    for score, found in (
        (result.fp32.score, [output.logits[0].numpy() for output in torch_logits(model, tokenizer, rows)]),
        (result.best.score, [logits[0][0] for logits in engine_logits(result.path, rows)]),
    ):
        golds = [[TAGS[i] for i in row["labels"] if i >= 0] for row in rows]
        said = [
            [TAGS[i] for i, label in zip(logits.argmax(-1), row["labels"], strict=True) if label >= 0]
            for logits, row in zip(found, rows, strict=True)
        ]
        assert score.value == pytest.approx(f1_score(golds, said))
    found = runtime.load(result.path).predict(["old river dog"])[0]
    check_reports(tmp_path / "out")
    assert len(found.tags) == 3


def test_questions_are_scored_by_spans_of_tokens(tmp_path: Path) -> None:
    model, tokenizer = load(folder(tmp_path / "model", "QuestionAnswering"))
    rows = [{**tokenizer("what is the capital", text), "start_positions": 6, "end_positions": 7} for text in texts(30)]
    collator = DataCollatorWithPadding(tokenizer)
    args = arguments(tmp_path / "out", "embeddings")
    result = trainer(model, args, eval_dataset=rows, tokenizer=tokenizer, data_collator=collator).compress()
    exact = []
    for output in torch_logits(model, tokenizer, rows):
        start, end = output.start_logits[0], output.end_logits[0]
        sums = {(s, e): float(start[s] + end[e]) for s in range(len(start)) for e in range(s, min(len(end), s + 30))}
        exact.append(max(sums, key=sums.__getitem__) == (6, 7))
    assert result.fp32.score.metric == "f1"
    assert result.fp32.score.metrics["em"] == pytest.approx(np.mean(exact))
    assert runtime.load(result.path).predict(("what is the capital", "paris is old"))[0].text
    check_reports(tmp_path / "out")


def test_a_family_with_one_segment_and_another_padding_id(tmp_path: Path) -> None:
    model, tokenizer = load(folder(tmp_path / "model", family="roberta"))
    rows = classified(tokenizer, 24)
    live_trainer = trainer(model, arguments(tmp_path / "out", "embeddings"), eval_dataset=rows, tokenizer=tokenizer)
    result = live_trainer.compress()
    wanted = [output.logits[0].numpy() for output in torch_logits(model, tokenizer, rows)]
    assert np.stack(result.fp32.answers.logits) == pytest.approx(np.stack(wanted), abs=1e-4)
    assert result.source.fp32.manifest.inputs == ("input_ids", "attention_mask")
    assert result.source.fp32.manifest.pad_token_id == tokenizer.pad_token_id == 1


def normal(text: str) -> list[str]:
    return [word for word in "".join(c for c in text.lower() if c.isalnum() or c == " ").split() if word != "the"]


def test_questions_with_their_texts_have_squads_score(tmp_path: Path) -> None:
    """Windows over long contexts, prepared as transformers' own script does; compared with a loop over texts."""
    model, tokenizer = load(folder(tmp_path / "model", "QuestionAnswering"))
    contexts = [" ".join(texts(4, seed)) for seed in range(24)]
    questions = [
        {"id": f"q{i}", "context": c, "answers": {"text": [c.split()[3]], "answer_start": [c.index(c.split()[3])]}}
        for i, c in enumerate(contexts)
    ]
    made = tokenizer(
        ["what is it"] * len(contexts), contexts, truncation="only_second", max_length=24, stride=4,
        return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip
    rows = []
    for i, owner in enumerate(made["overflow_to_sample_mapping"]):
        offsets = [pair if made.sequence_ids(i)[k] == 1 else None for k, pair in enumerate(made["offset_mapping"][i])]
        inputs = {name: made[name][i] for name in ("input_ids", "attention_mask", "token_type_ids")}
        rows.append({**inputs, "example_id": f"q{owner}", "offset_mapping": offsets})
    assert len(rows) > len(questions)
    live_trainer = trainer(
        model, arguments(tmp_path / "out", "embeddings"), eval_dataset=rows, tokenizer=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer), eval_examples=questions,
    )  # fmt: skip
    result = live_trainer.compress()
    exact, f1 = [], []
    for i, question in enumerate(questions):
        best = (-np.inf, "")
        for row in (row for row in rows if row["example_id"] == f"q{i}"):
            (output,) = torch_logits(model, tokenizer, [row])
            start, end = output.start_logits[0].tolist(), output.end_logits[0].tolist()
            places = [k for k, pair in enumerate(row["offset_mapping"]) if pair is not None]
            tops = [sorted(places, key=lambda k: -side[k])[:20] for side in (start, end)]
            for s, e in ((s, e) for s in tops[0] for e in tops[1] if s <= e < s + 30):
                text = question["context"][row["offset_mapping"][s][0] : row["offset_mapping"][e][1]]
                best = max(best, (start[s] + end[e], text))
        gold, said = normal(question["answers"]["text"][0]), normal(best[1])
        same = sum(min(gold.count(word), said.count(word)) for word in set(gold))
        exact.append(gold == said)
        f1.append(2 * same / (len(gold) + len(said)))
    assert result.fp32.score.rows == len(questions)
    assert result.fp32.score.metrics["em"] == pytest.approx(np.mean(exact))
    assert result.fp32.score.value == pytest.approx(np.mean(f1))
    check_reports(tmp_path / "out")


def test_all_inputs_of_the_rows_are_fed(tmp_path: Path) -> None:
    """Positions from the end to the beginning: logits are others without them."""
    model, tokenizer = load(folder(tmp_path / "model"))
    rows = [{**row, "position_ids": list(range(len(row["input_ids"])))[::-1]} for row in classified(tokenizer, 30)]

    def collate(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(len(item["input_ids"]) for item in items)
        names = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
        batch = {n: torch.tensor([item[n] + [0] * (longest - len(item[n])) for item in items]) for n in names}
        return {**batch, "labels": torch.tensor([item["labels"] for item in items])}

    args = arguments(tmp_path / "out", "ptq", calibration_rows=8)
    result = trainer(model, args, eval_dataset=rows, tokenizer=tokenizer, data_collator=collate).compress()
    model.eval()
    with torch.no_grad():
        feed = [{k: torch.tensor([v]) for k, v in row.items() if k != "labels"} for row in rows]
        wanted = np.concatenate([model(**row).logits for row in feed])
        without = [model(**{k: v for k, v in row.items() if k != "position_ids"}).logits for row in feed]
    assert np.abs(wanted - np.concatenate(without)).max() > 0.01
    assert np.stack(result.fp32.answers.logits) == pytest.approx(wanted, abs=1e-4)
    assert "position_ids" in result.source.fp32.manifest.inputs
    assert {replay.verdict for replay in check(result.path)} == {"ok"}


def test_a_collator_that_tokenizes_serves_calibration_and_scores(tmp_path: Path) -> None:
    model, tokenizer = load(folder(tmp_path / "model"))
    rows = [{"text": text, "label": number % 3} for number, text in enumerate(texts(36))]

    def collate(items: list[dict[str, Any]]) -> Any:
        batch = tokenizer([item["text"] for item in items], padding=True, return_tensors="pt")
        return {**batch, "labels": torch.tensor([item["label"] for item in items])}

    args = arguments(tmp_path / "out", "ptq", remove_unused_columns=False, calibration_rows=8)
    live_trainer = trainer(
        model, args, train_dataset=rows[:12], eval_dataset=rows[12:], data_collator=collate, tokenizer=tokenizer
    )
    result = live_trainer.compress()
    found = torch_logits(model, tokenizer, [dict(tokenizer(row["text"])) for row in rows[12:]])
    wanted = accuracy_score([row["label"] for row in rows[12:]], [int(output.logits.argmax()) for output in found])
    assert result.fp32.score.value == wanted
    assert result.rows.counts["calibration"] == 8


def test_tuples_bind_in_order_and_a_function_of_the_users_scores_them(tmp_path: Path) -> None:
    model, _ = load(folder(tmp_path / "model"))
    torch.manual_seed(0)
    ids = torch.randint(5, 100, (40, 10))
    ids[::2, 6:] = 0
    labels = torch.randint(0, 3, (40,))
    args = arguments(tmp_path / "out", "dynamic+embeddings", tensor_names=["input_ids", "labels"])
    live_trainer = trainer(model, args, eval_dataset=TensorDataset(ids, labels))
    seen: list[int] = []

    def evaluate(model: Any, loader: Any) -> float:
        """Passes no mask, as PaddleNLP's evaluators do; lower is better."""
        wrong = 0
        for some, gold in loader:
            wrong += int((model(some).argmax(-1) != gold).sum())
            seen.append(len(gold))
        return wrong / 40

    result = live_trainer.compress(evaluate, greater_is_better=False)
    model.eval()
    with torch.no_grad():
        said = model(ids, attention_mask=(ids != 0).long()).logits.argmax(-1)
    assert result.fp32.score.value == pytest.approx(float((said != labels).float().mean()))
    assert result.fp32.score.metric == "custom_evaluate"
    assert result.best.score.interval is None
    assert result.best.comparison.drop.drop == pytest.approx(result.best.score.value - result.fp32.score.value)
    assert sum(seen) == 80
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["candidates"][0]["drop_interval"] is content["fp32"]["interval"] is None


def test_rows_without_labels_are_learnt_from_whatever_labels_they_have(tmp_path: Path) -> None:
    """Beside labelled rows, whose criterion sees no others; as tuples with labels that are none, and without."""
    model, _ = load(folder(tmp_path / "model", layers=1))
    ids = torch.randint(5, 100, (40, 10), generator=torch.Generator().manual_seed(0))
    masks, labels = torch.ones_like(ids), torch.arange(40) % 3
    rows = TensorDataset(ids[:8], masks[:8], labels[:8]), TensorDataset(ids[8:16], masks[8:16], labels[8:16])
    more = (ids[16:], masks[16:])
    learnt: list[str] = []
    seen_labels: list[int] = []

    def criterion(logits: Any, gold: Any) -> Any:
        seen_labels.extend(gold.tolist())
        assert len(logits) == len(gold)
        return torch.nn.functional.cross_entropy(logits, gold)

    for number, others in enumerate((TensorDataset(*more, torch.full((24,), 77)), TensorDataset(*more))):
        args = arguments(
            tmp_path / str(number), "dynabert", max_steps=4, width_mult_list="1/2", importance_rows=8, label_loss=1,
            tensor_names=["input_ids", "attention_mask", "labels"], per_device_train_batch_size=4,
        )  # fmt: skip
        live_trainer = trainer(
            model, args, train_dataset=rows[0], eval_dataset=rows[1], unlabelled_dataset=others, criterion=criterion
        )
        assert live_trainer.compress(lambda model, loader: 0.5).rows.counts["unlabelled"] == 24
        learnt.append(sha256(tmp_path / str(number) / "torch" / "width_mult_0.5" / "model.safetensors"))
    assert learnt[0] == learnt[1]
    assert set(seen_labels) <= {0, 1, 2}


def test_tuples_without_labels_bind_to_the_same_inputs(tmp_path: Path) -> None:
    model, _ = load(folder(tmp_path / "model", layers=1))
    ids = torch.ones(4, 3, dtype=torch.long)
    live_trainer = trainer(
        model, arguments(tmp_path / "out", "dynabert"), train_dataset=TensorDataset(ids, ids, ids[:, 0]),
        unlabelled_dataset=TensorDataset(ids, ids),
    )  # fmt: skip
    names = [
        list(live_trainer.data_collator([dataset[0]]))
        for dataset in (live_trainer.train_dataset, live_trainer.unlabelled_dataset)
    ]
    assert names == [["input_ids", "attention_mask", "labels"], ["input_ids", "attention_mask"]]


def test_pruning_by_criterion_and_compute_metrics(tmp_path: Path) -> None:
    model, tokenizer = load(folder(tmp_path / "model"))
    rows = classified(tokenizer, 60)
    shapes = []

    class Loss(torch.nn.Module):
        def forward(self, logits: Any, labels: Any) -> Any:
            shapes.append(logits.shape)
            return torch.nn.functional.cross_entropy(logits, labels)

    def compute(prediction: Any) -> dict[str, float]:
        right = prediction.predictions.argmax(-1) == prediction.label_ids
        return {"count": float(len(right)), "share": float(right.mean())}

    args = arguments(
        tmp_path / "out", "dynabert+ptq", max_steps=2, width_mult_list="1/2", metric_for_best_model="share",
        importance_rows=8, calibration_rows=8,
    )  # fmt: skip
    live_trainer = trainer(
        model, args, tokenizer=tokenizer, data_collator=DataCollatorWithPadding(tokenizer), criterion=Loss(),
        train_dataset=rows[:30], eval_dataset=rows[30:], compute_metrics=compute,
    )  # fmt: skip
    result = live_trainer.compress()
    assert shapes
    assert result.source.task.metric == "share"
    shipped = [int(logits[0].argmax()) for logits in engine_logits(result.path, rows[30:])]
    assert result.best.score.value == pytest.approx(accuracy_score([row["labels"] for row in rows[30:]], shipped))
    assert (tmp_path / "out" / "torch" / "width_mult_0.5" / "model.safetensors").is_file()
    assert [measured.name for measured in result.candidates] == ["width_mult_0.5-mse8"]
    shapes.clear()
    live_trainer.train()
    assert len(shapes) == 2
