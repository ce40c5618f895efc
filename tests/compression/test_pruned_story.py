"""Compress runs that prune first: every strategy in one call, what they share, what lies where, what is chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import tersely
from folders import digests
from learnable import conll, question, split, squad, tagged, tiny
from report_page import check_reports
from tersely import runtime
from tersely.artifact import read
from tersely.compression import make_candidates, make_parents, parents
from tersely.compression.result import CompressionResult
from tersely.data import read as read_rows
from tersely.measure.check import check
from widths import learnt

pytestmark = pytest.mark.slow  # what its fixtures make takes long

WIDTH = "width_mult_0.75"
TRAINED = ("dynabert", "dynabert+ptq", "embeddings+dynabert", "ptq, dynabert, embeddings", "dynamic dynabert")
CUT = ("prune_embeddings", "ptq+prune_embeddings", "prune_embeddings+dynamic", "embeddings+prune_embeddings",
       "prune_embeddings+ptq+embeddings", "prune_embeddings+dynamic+embeddings")  # fmt: skip
STRATEGIES = ("ptq", *TRAINED, *(f"prune_embeddings+{words}" for words in TRAINED), *CUT)
ENDINGS = ("", "-mse64", "-embeddings", "-mse64-embeddings", "-dynamic")
NAMES = {
    "mse64",
    *(f"{WIDTH}{ending}" for ending in ENDINGS),
    *(f"prune_embeddings-{WIDTH}{ending}" for ending in ENDINGS),
    *(f"prune_embeddings{ending}" for ending in (*ENDINGS, "-dynamic-embeddings")),
}
MODELS = {WIDTH, f"prune_embeddings-{WIDTH}", "vocabulary"}
QUICK: dict[str, Any] = {"learning_rate": 1e-3, "num_train_epochs": 1, "save_steps": 6, "engines": "onnxruntime"}


class Everything(NamedTuple):
    folder: Path
    result: CompressionResult
    content: dict[str, Any]
    calls: dict[str, int]

    def artifact(self, name: str) -> Path:
        return self.result.output_dir / "candidates" / name


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Everything:
    """All strategies in one call on a model that knows its rows; how often the costly steps ran is counted."""
    folder = tmp_path_factory.mktemp("pruned")
    model = learnt(folder, hidden=64).path
    before = digests(model)
    calls: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (make_parents, "train_widths"), (make_parents, "prune_vocabulary"), (make_candidates, "ptq"),
            (parents, "write_artifact"),
        ):  # fmt: skip
            patch.setattr(module, name, counted(getattr(module, name), name, calls))
        result = tersely.compress(
            model, train_file=folder / "train.jsonl", eval_file=folder / "dev.jsonl", test_file=folder / "dev.jsonl",
            output_dir=folder / "out", strategy=STRATEGIES, algo_list="mse", calibration_rows=64, **QUICK,
        )  # fmt: skip
    assert digests(model) == before
    return Everything(folder, result, json.loads((folder / "out" / "result.json").read_text()), calls)


def counted(real: Any, name: str, calls: dict[str, int]) -> Any:
    def call(*positional: Any, **named: Any) -> Any:
        calls[name] = calls.get(name, 0) + 1
        return real(*positional, **named)

    return call


def test_every_strategy_gives_its_candidate_by_name(everything: Everything) -> None:
    found = {candidate["name"]: candidate for candidate in everything.content["candidates"]}
    assert set(found) | set(everything.content["same"]) == NAMES
    assert {path.name for path in (everything.result.output_dir / "candidates").iterdir()} == set(found)
    assert {path.name for path in (everything.result.output_dir / "torch").iterdir()} == MODELS
    assert sorted(path.name for path in everything.result.output_dir.iterdir()) == [
        "best", "candidates", "report.html", "report.md", "result.json", "torch",
    ]  # fmt: skip
    assert f"Pruned model {WIDTH}: width 3/4, depth 1" in check_reports(everything.result.output_dir).text
    for name, candidate in found.items():
        assert "+".join(tersely.strategy.parse(candidate["strategy"]).pruning) == {
            None: "", "vocabulary": "prune_embeddings", WIDTH: "dynabert",
        }.get(candidate["model"], "prune_embeddings+dynabert"), name  # fmt: skip


def test_costly_steps_run_once_for_all_who_need_them(everything: Everything) -> None:
    """One training; a cut of the model and of the width; four models exported and calibrated."""
    assert everything.calls == {"train_widths": 1, "prune_vocabulary": 2, "write_artifact": 4, "ptq": 4}


def test_every_candidate_scores_as_told_and_checks_out(everything: Everything) -> None:
    texts = read_rows(everything.folder / "dev.jsonl").records
    golds = [row["label"] for row in texts]
    for candidate in everything.content["candidates"]:
        artifact = read(everything.artifact(candidate["name"]))
        labels = [answer.label for answer in answers(artifact.folder, texts)]
        if "dynamic" not in candidate["name"]:
            assert candidate["score"] == pytest.approx(np.mean([a == b for a, b in zip(labels, golds, strict=True)]))
        assert {replay.verdict for replay in check(artifact.folder)} == {"ok"}, candidate["name"]
        assert artifact.manifest.score is not None
        assert artifact.manifest.score["on"] == "eval rows, which also chose"
        assert candidate["drop"] == pytest.approx(everything.content["fp32"]["score"] - candidate["score"])


def answers(folder: Path, records: Any) -> list[Any]:
    return list(runtime.load(folder, engine="onnxruntime").predict([row["text"] for row in records]))


def test_parents_are_named_from_the_users_model_on(everything: Everything) -> None:
    by_name = {model["name"]: model["sha256"] for model in everything.content["pruned"]}
    origin = everything.content["fp32"]["sha256"]
    assert set(by_name) == MODELS
    for candidate in everything.content["candidates"]:
        chain = [origin, *([by_name[candidate["model"]]] if candidate["model"] else [])]
        assert read(everything.artifact(candidate["name"])).manifest.parents == tuple(f"sha256:{x}" for x in chain)


def test_unquantized_candidate_is_one_float_graph(everything: Everything) -> None:
    for name in (WIDTH, f"prune_embeddings-{WIDTH}", "prune_embeddings"):
        artifact = read(everything.artifact(name))
        (graph,) = artifact.manifest.graphs
        assert (graph.path, graph.precision) == ("onnx/model.onnx", "fp32")
        tensors = onnx.load(artifact.path(graph.path)).graph.initializer
        assert not any(tensor.data_type == onnx.TensorProto.INT8 for tensor in tensors)
    sizes = {candidate["name"]: candidate["size"] for candidate in everything.content["candidates"]}
    assert sizes[f"prune_embeddings-{WIDTH}"] < sizes[WIDTH] < everything.content["fp32"]["size"]
    assert sizes[f"{WIDTH}-mse64-embeddings"] < sizes[f"{WIDTH}-mse64"] < sizes[WIDTH]


def test_cut_vocabulary_changes_no_answer_of_rows_whose_tokens_stay(everything: Everything) -> None:
    by_name = {candidate["name"]: candidate for candidate in everything.content["candidates"]}
    cut = next(model for model in everything.content["pruned"] if model["name"] == "vocabulary")["vocabulary"]
    assert cut["tokens_after"] < cut["tokens_before"]
    assert cut["same_rows"] == 1.0
    assert by_name["prune_embeddings"]["same_answer"] == 1.0
    assert by_name["prune_embeddings"]["mean_abs_logit_change"] < 1e-5
    for ending in ENDINGS[:2]:  # trained once, cut afterwards
        full, smaller = by_name[f"{WIDTH}{ending}"], by_name[f"prune_embeddings-{WIDTH}{ending}"]
        assert smaller["score"] == pytest.approx(full["score"], abs=1 / 50)
    assert by_name[WIDTH]["same_answer"] == by_name[f"prune_embeddings-{WIDTH}"]["same_answer"]


def test_torch_models_open_and_score_as_their_graphs(everything: Everything) -> None:
    scores = {candidate["name"]: candidate["score"] for candidate in everything.content["candidates"]}
    for name in MODELS:
        place = everything.result.output_dir / "torch" / name
        module = tersely.load_model(place)
        assert sum(x.numel() for x in module.parameters()) > 0
        texts = read_rows(everything.folder / "dev.jsonl")
        opened = tersely.models.folder.open_folder(place)
        predictor = runtime.Predictor(opened.task, opened.encoder, tersely.engines.load("torch", module))
        found = tersely.measure.score.score(predictor, opened.task.read(texts, tersely.tasks.Columns(), labelled=True))
        assert found.value == pytest.approx(scores["prune_embeddings" if name == "vocabulary" else name])
    pruned = next(model for model in everything.content["pruned"] if model["name"] == WIDTH)
    assert (pruned["width"], pruned["depth"], pruned["torch_score"]) == ("3/4", "1", pytest.approx(scores[WIDTH]))
    assert pruned["shape"]["heads"] == [3, 3]


def test_no_candidate_on_the_front_is_beaten(everything: Everything) -> None:
    """Against a plain double loop over what the result says."""
    measured = [
        (
            candidate["name"],
            candidate["score"],
            np.prod([x["ratio"] for x in candidate["speed_by_batch"].values()]) ** 0.5,
            candidate["size"],
        )
        for candidate in everything.content["candidates"]
    ]
    for name, score, speed, size in measured:
        beaten = any(
            s >= score and v * 1.05 >= speed and b <= size and (s > score or v > 1.05 * speed or b < size)
            for _, s, v, b in measured
        )
        marked = next(
            candidate["pareto"] for candidate in everything.content["candidates"] if candidate["name"] == name
        )
        assert marked == (not beaten), name
    assert everything.content["best"] in NAMES
    assert everything.content["test"]["best"]["score"] is not None
    assert everything.content["rows"]["train"] == 110


KINDS = {
    "TokenClassification": (tagged("IOB2"), conll, "txt", ("O", "B-LOC", "B-PER", "I-PER"), "the old river"),
    "QuestionAnswering": (question, squad, "json", (), ("what is the capital", "the dark river paris")),
}


@pytest.mark.slow
@pytest.mark.parametrize("head", KINDS)
def test_other_tasks_are_pruned_too(head: str, tmp_path: Path) -> None:
    make, write, suffix, labels, question = KINDS[head]
    train, dev = split(tmp_path, make, write, suffix)
    names = {"id2label": dict(enumerate(labels))} if labels else {}
    model = tiny(tmp_path / "model", head, hidden=64, labels=len(labels) or 2, std=0.3, **names)
    result = tersely.compress(
        model, train_file=train, eval_file=dev, output_dir=tmp_path / "out", max_seq_length=40, max_vocab_size=90,
        strategy="prune_embeddings+dynabert+ptq", algo_list="mse", width_mult_list="1/2", max_steps=4, label_loss=1.0,
        **{**QUICK, "save_steps": 2},
    )  # fmt: skip
    assert [measured.name for measured in result.candidates] == ["prune_embeddings-width_mult_0.5-mse128"]
    assert 0 <= result.best.comparison.same_answer <= 1
    opened = runtime.load(result.path)
    assert opened.task.max_seq_length == 40
    assert opened.encoder.vocab_size <= 90
    assert len(opened.predict(question)) == 1
    torch_model = tersely.models.folder.open_folder(result.output_dir / "torch" / "prune_embeddings-width_mult_0.5")
    assert torch_model.task == opened.task


@pytest.mark.slow
def test_widths_and_depths_are_trained_together(tmp_path: Path) -> None:
    folder = learnt(tmp_path, hidden=64).path
    result = tersely.compress(
        folder, train_file=tmp_path / "train.jsonl", eval_file=tmp_path / "dev.jsonl", output_dir=tmp_path / "out",
        strategy=["dynabert+dynamic"], width_mult_list=[0.5, "3/4"], depth_mult_list="1/2", **QUICK,
    )  # fmt: skip
    names = [f"width_mult_{width}-depth_mult_0.5" for width in ("0.5", "0.75")]
    assert sorted(path.name for path in (tmp_path / "out" / "torch").iterdir()) == names
    assert [measured.name for measured in result.candidates] == [f"{name}-dynamic" for name in names]
    smaller, larger = (measured.size for measured in result.candidates)
    assert smaller < larger < result.fp32.size


@pytest.mark.slow
def test_max_drop_is_sought_among_all_models_on_all_engines(tmp_path: Path) -> None:
    """A limit that nothing holds: more rows, then layers left float, of both models that lost a layer and went astray.

    Of whole depth they would be repaired.
    """
    folder = learnt(tmp_path, hidden=64).path
    keywords: dict[str, Any] = {**QUICK, "engines": "onnxruntime openvino", "max_steps": 2, "learning_rate": 0.1}
    result = tersely.compress(
        folder, train_file=tmp_path / "train.jsonl", eval_file=tmp_path / "dev.jsonl", output_dir=tmp_path / "out",
        strategy=["dynabert+ptq"], width_mult_list=["1/2", "3/4"], depth_mult_list="1/2", algo_list="mse",
        calibration_rows=16, max_drop=0.0, sensitivity=True, **keywords,
    )  # fmt: skip
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    names = {candidate["name"] for candidate in content["candidates"]} | {
        candidate["name"] for candidate in content["screened_out"]
    }
    for width in ("0.5", "0.75"):
        name = f"width_mult_{width}-depth_mult_0.5"
        assert {f"{name}-mse{ending}" for ending in ("16", "16-float1", "16-float2")} <= names
    assert content["met_max_drop"] is False
    assert result.best.comparison.drop is not None
    assert result.best.comparison.drop.drop > 0
    assert "bert.encoder.layer.0.intermediate.dense.weight" in content["sensitivity"]
    for engine in ("onnxruntime", "openvino"):
        texts = read_rows(tmp_path / "dev.jsonl").records
        assert len(runtime.load(result.path, engine=engine).predict([row["text"] for row in texts])) == len(texts)
