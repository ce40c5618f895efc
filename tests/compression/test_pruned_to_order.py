"""Compress runs that prune to a speed-up: by a table of what layers cost, made here so that shapes are known."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import tersely
from folders import digests
from report_page import check_reports
from tersely import runtime
from tersely.artifact import read
from tersely.compression.result import CompressionResult
from tersely.data import read as read_rows
from tersely.data import rows_of
from tersely.errors import UserError
from tersely.measure.check import check
from tersely.models.torch_folder import load_module
from tersely.prune.latency import Cost, LatencyTable
from tersely.tasks import Columns
from widths import learnt

pytestmark = pytest.mark.slow  # what its fixtures make takes long

STRATEGIES = ("prune", "prune+ptq+embeddings")
TARGET: dict[str, Any] = {"target_batch": 2, "target_length": 16}
QUICK: dict[str, Any] = {"algo_list": "mse", "calibration_rows": 16, "engines": "onnxruntime", **TARGET}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return learnt(tmp_path_factory.mktemp("to_order"), hidden=64)


def compress(model: Any, out: Path, strategy: Any, **options: Any) -> CompressionResult:
    rows = {"train_file": model.path.parent / "train.jsonl", "eval_file": model.path.parent / "dev.jsonl"}
    return tersely.compress(model.path, output_dir=out, strategy=strategy, **{**rows, **QUICK, **options})


@pytest.fixture(scope="module")
def measured(model: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run that measures both tables itself."""
    before = digests(model.path)
    result = compress(model, tmp_path_factory.mktemp("measured") / "out", STRATEGIES, target_speedup=1.02)
    assert digests(model.path) == before
    return json.loads((result.output_dir / "result.json").read_text())


@pytest.fixture(scope="module")
def tables(measured: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both tables with seconds that are known: a head 1, a neuron 0.05, the rest 4."""
    made = []
    for content in measured["latency_tables"]:
        about = content["about"]
        heads, neurons = about["heads"], about["neurons"]
        full = sum(heads) + 0.05 * sum(neurons) + 4.0
        costs = {
            "heads": Cost((0, max(heads)), (0.0, float(max(heads)))),
            "neurons": Cost((0, max(neurons)), (0.0, 0.05 * max(neurons))),
        }
        costs |= {f"last_{name}": cost for name, cost in costs.items()}
        made.append(LatencyTable(full, full, **costs, about=about).to_json())
    place = tmp_path_factory.mktemp("tables") / "result.json"
    place.write_text(json.dumps({"latency_tables": made}))
    return place


@pytest.fixture(scope="module")
def ordered(model: Any, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> CompressionResult:
    out = tmp_path_factory.mktemp("ordered") / "out"
    return compress(model, out, STRATEGIES, target_speedup=1.6, latency_table=tables)


def test_tables_are_measured_in_each_precision_and_kept(measured: dict[str, Any]) -> None:
    kept = {table["about"]["precision"]: table for table in measured["latency_tables"]}
    assert {table["about"]["products"] for table in kept.values()} == {"off"}  # on ONNX Runtime alone
    assert set(kept) == {"fp32", "ptq"}
    for table in kept.values():
        assert table["about"]["cpu_class"] == measured["cpu"]["class"]
        assert (table["about"]["batch"], table["about"]["length"], table["about"]["threads"]) == (2, 16, 1)
        for name in ("heads", "neurons", "last_heads", "last_neurons"):
            seconds = table[name]["seconds"]
            assert seconds[0] == 0.0
            assert seconds == sorted(seconds)
    assert measured["target"]["batch"] == 2


def test_each_strategy_gets_a_model_within_its_budget(ordered: CompressionResult, tables: Path) -> None:
    names = {measured.name: measured.candidate.parent for measured in ordered.candidates}
    assert set(names) == {"speedup_1.6", "speedup_1.6-mse16-embeddings"}
    for parent in names.values():
        shot = parent.shot
        assert shot is not None
        taken = sum(shot.shape.heads) + 0.05 * sum(shot.shape.ffn) + 4.0
        full = json.loads(tables.read_text())["latency_tables"][0]["full"]
        assert shot.expected == pytest.approx(full / taken)
        assert shot.expected >= 1.6 * 0.95 or shot.seen < 0.95 * 1.6  # a second try gets another budget


def test_what_is_published_loads_runs_and_checks_out(ordered: CompressionResult, model: Any) -> None:
    texts = [row["text"] for row in read_rows(model.path.parent / "dev.jsonl").records]
    folders = {path.name for path in (ordered.output_dir / "torch").iterdir()}
    assert folders == {"speedup_1.6", "speedup_1.6-fp32"}
    pruned = load_module(ordered.output_dir / "torch" / "speedup_1.6-fp32").eval()
    found = runtime.load(ordered.output_dir / "candidates" / "speedup_1.6", engine="onnxruntime")
    answers = list(found.predict(texts[:20]))
    with torch.no_grad():
        for text, answer in zip(texts[:20], answers, strict=True):
            (example,) = model.task.read(rows_of([{"text": text}]), Columns(), labelled=False)
            (feature,) = model.task.features([example], model.encoder)
            ids = torch.from_numpy(feature.input_ids)[None]
            scores = pruned(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.softmax(-1)[0]
            assert float(scores.max()) == pytest.approx(answer.score, abs=1e-4)
    for measured in ordered.candidates:
        artifact = read(ordered.output_dir / "candidates" / measured.name)
        assert {replay.verdict for replay in check(artifact.folder)} == {"ok"}
        assert len(artifact.manifest.parents) == 2


def test_the_same_table_gives_the_same_bytes(ordered: CompressionResult, model: Any, tmp_path: Path) -> None:
    """That of the run, which holds what its graphs took: a budget is corrected by that, not by a new timing."""
    again = compress(
        model, tmp_path / "out", STRATEGIES, target_speedup=1.6, latency_table=ordered.output_dir / "result.json"
    )
    for name in ("speedup_1.6", "speedup_1.6-fp32"):
        first, second = (result.output_dir / "torch" / name / "model.safetensors" for result in (ordered, again))
        assert first.read_bytes() == second.read_bytes()


def test_result_and_reports_tell_of_target_table_and_shape(ordered: CompressionResult) -> None:
    content = json.loads((ordered.output_dir / "result.json").read_text())
    for candidate in content["candidates"]:
        assert candidate["speedup"]["ratio"] > 0
    shots = {model["name"]: model["shot"] for model in content["pruned"]}
    assert {shot["target"] for shot in shots.values()} == {1.6}
    assert {shot["method"] for shot in shots.values()} <= {"fisher and surgeon", "surgeon"}
    missed = content["target"]["missed"]
    for candidate in content["candidates"]:
        assert (candidate["name"] in missed) == (candidate["speedup"]["ratio"] < 0.95 * 1.6)
    check_reports(ordered.output_dir)


def test_distillation_goes_on_from_the_repaired_model(model: Any, tables: Path, tmp_path: Path) -> None:
    training = {"num_train_epochs": 1, "save_steps": 5, "learning_rate": 1e-3}
    result = compress(
        model, tmp_path / "out", "prune+dynabert+ptq+embeddings", target_speedup=1.6, latency_table=tables, **training
    )
    (measured,) = result.candidates
    assert measured.name == "speedup_1.6-dynabert-mse16-embeddings"
    parent = measured.candidate.parent
    assert parent.shot is not None
    assert parent.distilled is not None
    assert parent.distilled.distance <= parent.distilled.start
    content = json.loads((result.output_dir / "result.json").read_text())
    assert content["pruned"][0]["distilled"]["step"] == parent.distilled.step


@pytest.mark.long  # its trainings end by the clock
def test_the_minutes_of_a_run_are_shared_by_its_trainings(model: Any, tables: Path, tmp_path: Path) -> None:
    allowed, begun = 4.0, time.monotonic()
    result = compress(
        model, tmp_path / "out", "prune+dynabert", target_speedup=[1.3, 1.6], latency_table=tables, max_minutes=allowed,
        max_steps=1_000_000, save_steps=2000,
    )  # fmt: skip
    assert time.monotonic() - begun < 60 * (allowed + 2)
    assert result.not_tried == ()
    first, second = (measured.candidate.parent.distilled.steps for measured in result.candidates)
    assert 0.4 < first / second < 2.5


def test_a_table_of_another_setting_is_refused(model: Any, tables: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="measured with length 16; here it is 12"):
        compress(model, tmp_path / "out", STRATEGIES, target_speedup=1.6, latency_table=tables, target_length=12)
    assert not (tmp_path / "out" / "result.json").exists()


def test_a_speed_up_that_no_layer_allows_is_refused_before_models_are_made(
    model: Any, tables: Path, tmp_path: Path
) -> None:
    full = json.loads(tables.read_text())["latency_tables"][0]["full"]
    with pytest.raises(UserError, match=rf"50 cannot be reached: without any layer it is {full / 4:.3g}"):
        compress(model, tmp_path / "out", STRATEGIES, target_speedup=50, latency_table=tables)
