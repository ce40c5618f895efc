"""A compress run from end to end, on models that NumPy can follow: what is written, said and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from huggingface_hub import ModelCard

from compressible import DEV, TEST, Place, layer_name
from folders import digests
from tersely import runtime
from tersely.artifact import read, sha256
from tersely.compression.call import compress
from tersely.compression.result import CompressionResult
from tersely.data import read as read_rows
from tersely.errors import Failure, UserError
from tersely.measure.check import check

Places = Callable[..., Place]
Compress = Callable[..., CompressionResult]
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
INPUTS = {"SequenceClassification": "the dark river", "TokenClassification": "the dark river",
         "QuestionAnswering": ("what is the capital", "the dark river")}  # fmt: skip
ONNXRUNTIME_MSE = {"engines": "onnxruntime", "algo_list": "mse"}


@pytest.fixture
def run(place: Places, tmp_path: Path) -> Compress:
    """Compress a model by hand with all its rows; options as the command has them."""

    def go(head: str = HEADS[0], harmful: int | None = None, *, out: str = "out", **options: Any) -> CompressionResult:
        here = place(head, harmful)
        keywords = {"strategy": "ptq", "train_file": here.train, "eval_file": here.dev, **options}
        return compress(input_infer_model_path=str(here.graph), output_dir=tmp_path / out, **keywords)

    return go


@pytest.fixture(scope="module")
def everything(place: Places, tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, CompressionResult]:
    """One run with several strategies on all engines, which many tests look at."""
    here = place()
    before = digests(here.folder)
    result = compress(
        input_infer_model_path=str(here.graph), train_file=here.train, eval_file=here.dev, test_file=here.test,
        output_dir=tmp_path_factory.mktemp("everything") / "out", strategy=["ptq", "dynamic", "ptq+embeddings"],
        calibration_rows=64, algo_list="mse KL", sensitivity=True, origin_metric=0.96,  # within the tolerance
    )  # fmt: skip
    assert digests(here.folder) == before
    return here, result


def golds(file: Path) -> list[str]:
    return [row["label"] for row in read_rows(file).records]


def answers(folder: Path, file: Path, **options: Any) -> list[str]:
    texts = [row["text"] for row in read_rows(file).records]
    return [answer.label for answer in runtime.load(folder, **options).predict(texts)]


def test_every_candidate_is_an_artifact_with_the_score_that_is_told(
    everything: tuple[Place, CompressionResult],
) -> None:
    here, result = everything
    content = json.loads((result.output_dir / "result.json").read_text())
    assert [candidate["name"] for candidate in content["candidates"]] == [
        "mse64", "KL64", "dynamic", "mse64-embeddings", "KL64-embeddings",
    ]  # fmt: skip
    assert sorted(path.name for path in (result.output_dir / "candidates").iterdir()) == sorted(
        candidate["name"] for candidate in content["candidates"]
    )
    assert content["fp32"]["score"] == 1.0  # its own labels
    assert content["fp32"]["sha256"] == sha256(here.graph)
    exact = golds(here.dev)
    for candidate in content["candidates"]:
        artifact = read(result.output_dir / candidate["path"])  # verifies every file
        assert artifact.manifest.strategy == candidate["strategy"]
        assert artifact.manifest.parents == (f"sha256:{sha256(here.graph)}",)
        assert artifact.manifest.score is not None
        assert (artifact.manifest.score["value"], artifact.manifest.score["on"]) == (
            candidate["score"], "eval rows, which also chose",
        )  # fmt: skip
        found = answers(artifact.folder, here.dev, engine=candidate["engine"])
        equal = float(np.mean([a == b for a, b in zip(found, exact, strict=True)]))
        assert candidate["score"] == pytest.approx(equal, abs=1e-12)
        assert candidate["same_answer"] == pytest.approx(equal, abs=1e-12)
        assert candidate["drop"] == pytest.approx(1 - equal, abs=1e-12)
        low, high = candidate["drop_interval"]
        assert low <= candidate["drop"] <= high
        graph = next(graph for graph in artifact.manifest.graphs if candidate["engine"] in graph.engines)
        assert candidate["size"] == sum((artifact.folder / name).stat().st_size for name in (graph.path, *graph.data))
        assert candidate["size"] < 0.7 * content["fp32"]["size"]
        assert candidate["folder_size"] == sum(p.stat().st_size for p in artifact.folder.rglob("*") if p.is_file())
        assert set(candidate["speed_by_batch"]) == {"1", "16"}
        assert (candidate["why_not"] is None) == (candidate["name"] == content["best"])
        assert {replay.verdict for replay in check(artifact.folder)} == {"ok"}
    assert result.best.name == content["best"]
    assert result.path == result.output_dir / content["path"]


def test_result_holds_memory_layers_sensitivity_and_timings(everything: tuple[Place, CompressionResult]) -> None:
    _, result = everything
    content = json.loads((result.output_dir / "result.json").read_text())
    assert content["rows"] == {
        "train": 0,
        "unlabelled": 0,
        "calibration": 64,
        "search": 0,
        "scoring": DEV,
        "test": TEST,
        "chosen_on": "eval rows, which also chose",
    }
    assert (content["task"], content["metric"], content["met_max_drop"]) == (
        "sequence_classification",
        "accuracy",
        True,
    )
    assert set(content["fp32"]["engine_by_batch"]) == set(content["fp32"]["seconds_by_batch"]) == {"1", "16"}
    best = next(candidate for candidate in content["candidates"] if candidate["name"] == content["best"])
    for measured in (content["fp32"], best):
        assert 20 < measured["memory_mb"] < 2000
    kinds = {layer["name"]: (layer["precision"], layer.get("reason")) for layer in content["layers"]}
    assert kinds["head.weight"] == ("float", "small")
    for layer in range(4):
        assert kinds[layer_name(layer)] == ("int8", None)
    assert all(layer["unsafe_pairs"] == 0 for layer in content["layers"] if layer.get("kind") == "layer")
    assert set(content["sensitivity"]) == {layer_name(layer) for layer in range(4)}
    assert list(content["sensitivity"].values()) == sorted(content["sensitivity"].values(), reverse=True)
    assert set(content["reasons"]) >= {layer["reason"] for layer in content["layers"] if "reason" in layer}
    dynamic = next(candidate for candidate in content["candidates"] if candidate["name"] == "dynamic")
    assert "1" in dynamic["evaluation_seconds_by_threads"]
    assert set(dynamic["evaluation_seconds_by_threads"]["1"]) == {"fp32", "int8"}


def test_test_rows_are_scored_apart(everything: tuple[Place, CompressionResult]) -> None:
    here, result = everything
    content = json.loads((result.output_dir / "result.json").read_text())["test"]
    found, exact = answers(result.path, here.test), golds(here.test)
    assert content["fp32"]["score"] == 1.0
    assert content["best"]["score"] == pytest.approx(np.mean([a == b for a, b in zip(found, exact, strict=True)]))
    assert content["best"]["rows"] == TEST
    assert content["best"]["drop"] == pytest.approx(1 - content["best"]["score"])


def test_files_are_shared_on_disk_but_for_weights_that_onnx_must_read(
    everything: tuple[Place, CompressionResult],
) -> None:
    _, result = everything
    folders = [result.output_dir / "candidates" / measured.name for measured in result.candidates]
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        assert len({(folder / name).stat().st_ino for folder in [*folders, result.path]}) == 1
    twin = result.output_dir / "candidates" / result.best.name
    names = {path.relative_to(twin) for path in twin.rglob("*") if path.is_file()}
    assert names == {path.relative_to(result.path) for path in result.path.rglob("*") if path.is_file()}
    weights = {Path(name) for graph in read(twin).manifest.graphs for name in graph.data}
    for name in names:
        assert ((twin / name).stat().st_ino == (result.path / name).stat().st_ino) == (name not in weights)
        assert (twin / name).read_bytes() == (result.path / name).read_bytes()
    for folder in [*folders, result.path]:
        for graph in folder.rglob("*.onnx"):
            onnx.checker.check_model(str(graph)) if graph.name != "model_onnxruntime.onnx" else onnx.load(graph)


def test_result_tells_by_name_what_its_file_tells(everything: tuple[Place, CompressionResult]) -> None:
    _, result = everything
    content = json.loads((result.output_dir / "result.json").read_text())
    by_name = {candidate["name"]: candidate for candidate in content["candidates"]}
    assert result.scores == {name: candidate["score"] for name, candidate in by_name.items()}
    assert result.sizes == {name: candidate["size"] for name, candidate in by_name.items()}
    speeds = {
        name: {int(batch): it["ratio"] for batch, it in candidate["speed_by_batch"].items()}
        for name, candidate in by_name.items()
    }
    assert result.speeds == speeds
    assert {name: path.relative_to(result.output_dir) for name, path in result.paths.items()} == {
        name: Path(candidate["path"]) for name, candidate in by_name.items()
    }
    assert result.report.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html")
    head, first, second, *others = repr(result).splitlines()
    assert head.split()[:3] == ["accuracy", "drop", "MB"]
    assert first.split()[:2] == ["FP32", "100.00"]
    best = by_name[content["best"]]
    score, drop = (f"{100 * best[name]:.2f}" for name in ("score", "drop"))
    assert second.split()[:4] == [content["best"], "(best)", score, drop]
    assert len(others) == len(by_name) - 1
    assert str(result) == repr(result)


def test_result_is_usable_after_the_run(everything: tuple[Place, CompressionResult]) -> None:
    _, result = everything
    batch = {"input_ids": np.array([[2, 10, 20, 30, 3]]), "attention_mask": np.ones((1, 5), np.int64)}
    assert len(result.candidates) == 5
    for measured in result.candidates:
        assert measured.candidate.folder.is_dir()
        (logits,) = measured.candidate.load(measured.candidate.pairs()[0]).run(batch)
        assert logits.shape == (1, 3)
        assert np.isfinite(logits).all()
    result.expect_met()


STRATEGIES = ("ptq", "dynamic", "embeddings", "ptq+embeddings", "dynamic+embeddings")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "head"),
    [
        # Each strategy and each task at least once; `test_matrix.py` has each two of them on models of transformers.
        *zip(STRATEGIES, (HEADS * 2)[: len(STRATEGIES)], strict=True),
        *(
            pytest.param(strategy, head, marks=pytest.mark.long)
            for place, strategy in enumerate(STRATEGIES)
            for head in HEADS
            if head != HEADS[place % len(HEADS)]
        ),
    ],
)
def test_every_strategy_works_on_every_task(strategy: str, head: str, run: Compress, place: Places) -> None:
    result = run(head, strategy=strategy, algo_list="mse") if "ptq" in strategy else run(head, strategy=strategy)
    content = json.loads((result.output_dir / "result.json").read_text())
    for candidate in content["candidates"]:
        read(result.output_dir / candidate["path"])
    for engine in ("auto", "onnxruntime", "openvino"):
        loaded = runtime.load(result.path, engine=engine)
        assert len(loaded.predict(INPUTS[head])) == 1
    quantized = {layer["name"] for layer in content["layers"] if layer["precision"] == "int8"}
    assert ("embeddings.weight" in quantized) == ("embeddings" in strategy)
    assert (layer_name(0) in quantized) == (strategy != "embeddings")
    assert result.best.comparison.same_answer > 0.9
    assert result.best.size < result.fp32.size
    card = (result.path / "README.md").read_text()
    assert f"| strategy | {result.best.candidate.plan.name} |" in card
    assert ("share its batch" in card) == ("dynamic" in strategy)
    data = ModelCard(card).data
    assert data.eval_results[0].metric_value == result.best.score.value
    assert "int8" in data.tags


@pytest.mark.parametrize("strategy", ["dynamic", "embeddings"])
def test_no_rows_are_needed_and_nothing_is_scored(strategy: str, run: Compress) -> None:
    result = run(strategy=strategy, train_file=None, eval_file=None, engines="onnxruntime")
    content = json.loads((result.output_dir / "result.json").read_text())
    assert content["fp32"]["score"] is None
    (candidate,) = content["candidates"]
    assert (candidate["score"], candidate["drop"]) == (None, None)
    assert candidate["same_answer"] > 0.9
    assert "nothing is scored" in " ".join(content["notes"])
    assert "*not scored*" in (result.path / "README.md").read_text()
    assert read(result.path).manifest.score is None
    assert runtime.load(result.path).predict("the dark river")[0].label in ("bad", "fair", "good")


def test_same_seed_gives_the_same_bytes(run: Compress) -> None:
    first, second = (run(out=out, strategy="ptq+embeddings", engines="onnxruntime") for out in ("a", "b"))
    trees = [
        {path.relative_to(result.path): path.read_bytes() for path in sorted(result.path.rglob("*")) if path.is_file()}
        for result in (first, second)
    ]
    assert trees[0] == trees[1]
    assert len(trees[0]) >= 8


def test_drop_is_kept_by_leaving_the_harmful_layer_float(run: Compress) -> None:
    """One layer is ruined by its one huge weight; without it the drop is met."""
    result = run(harmful=2, weight_quantize_type="abs_max", max_drop=0.1, calibration_rows=16, **ONNXRUNTIME_MSE)
    assert result.met
    result.expect_met()
    assert result.best.name == "mse16-float1"
    assert next(iter(result.sensitivity)) == layer_name(2)
    assert result.best.candidate.quant_map.left_float[layer_name(2)] == "sensitive"
    assert set(result.best.candidate.quant_map.layers) == {layer_name(i) for i in (0, 1, 3)}
    content = json.loads((result.output_dir / "result.json").read_text())
    by_name = {candidate["name"]: candidate for candidate in content["candidates"]}
    assert set(by_name) == {"mse16", "mse64", "mse16-float1"}  # more rows were tried first
    assert by_name["mse16"]["drop"] > 0.1 >= by_name["mse16-float1"]["drop"]
    assert by_name["mse16"]["why_not"] == "drop above --max_drop"
    assert content["rule"].startswith("Those whose drop is above --max_drop are out.")
    assert (content["max_drop"], content["met_max_drop"]) == (0.1, True)


def test_drop_that_cannot_be_met_is_a_failure_with_everything_written(run: Compress) -> None:
    result = run(harmful=2, weight_quantize_type="abs_max", max_drop=0.0, calibration_rows=64, **ONNXRUNTIME_MSE)
    assert not result.met
    with pytest.raises(Failure, match=r"No candidate keeps the drop to 0.00 points: the best one has \d"):
        result.expect_met()
    names = {path.name for path in (result.output_dir / "candidates").iterdir()}
    assert {"mse64", "mse64-float1", "mse64-float2"} <= names
    assert "mse64-float4" not in names  # that would be the float model
    assert json.loads((result.output_dir / "result.json").read_text())["met_max_drop"] is False
    for name in names:
        read(result.output_dir / "candidates" / name)


@pytest.mark.slow
def test_drop_of_dynamic_is_kept_too(run: Compress) -> None:
    kind: dict[str, Any] = {"strategy": "dynamic+embeddings", "engines": "onnxruntime"}
    result = run(harmful=1, weight_quantize_type="abs_max", max_drop=0.1, **kind)
    assert result.best.name == "dynamic-embeddings-float1"
    assert result.best.candidate.quant_map.left_float[layer_name(1)] == "sensitive"
    assert "embeddings.weight" in result.best.candidate.quant_map.tables
    lone = run(strategy="embeddings", engines="onnxruntime", max_drop=0.0, out="lone")
    assert [measured.name for measured in lone.candidates] == ["embeddings"]  # there is no layer to leave float


@pytest.mark.slow
def test_drop_exactly_at_the_limit_is_met(run: Compress) -> None:
    """1 - 0.9 is a little less than 0.1, and 1 - 0.7 a little more than 0.3."""
    kind: dict[str, Any] = {"engines": "onnxruntime", "algo_list": "KL", "calibration_rows": 16}
    drop = run(**kind).best.comparison.drop
    assert drop is not None
    assert drop.drop > 0
    again = run(**kind, max_drop=round(drop.drop * DEV) / DEV, out="again")
    assert [measured.name for measured in again.candidates] == ["KL16"]
    assert again.met


@pytest.mark.slow
def test_skip_patterns_and_auto_leave_layers_float(run: Compress) -> None:
    named = run(skip_layers="*layer.1.*", out="named", **ONNXRUNTIME_MSE).best.candidate.quant_map
    assert named.left_float[layer_name(1)] == "skipped"
    assert layer_name(0) in named.layers
    auto = run(harmful=2, weight_quantize_type="abs_max", skip_layers="auto", out="auto", **ONNXRUNTIME_MSE)
    assert auto.best.candidate.quant_map.left_float[layer_name(2)] == "sensitive"
    assert auto.best.score is not None
    assert auto.best.score.value > 0.8
    assert next(iter(auto.sensitivity)) == layer_name(2)


def test_nothing_left_to_quantize_is_refused(run: Compress, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'ptq' would leave everything float: .*4 named by skip_layers"):
        run(skip_layers="*layer*", **ONNXRUNTIME_MSE)
    assert list(tmp_path.iterdir()) == []


def test_wrong_origin_stops_before_anything_is_made(run: Compress, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"scores accuracy 1.0000, 'origin_metric' says 0.9000"):
        run(origin_metric=0.9, **ONNXRUNTIME_MSE)
    assert list(tmp_path.iterdir()) == []


def test_many_candidates_are_screened_and_those_left_out_leave_no_folder(run: Compress) -> None:
    grid = {"algo_list": "mse KL", "batch_size_list": "4", "batch_num_list": "1 2 4 8"}
    result = run(strategy=["ptq", "dynamic"], engines="onnxruntime", **grid)
    content = json.loads((result.output_dir / "result.json").read_text())
    kept = {candidate["name"] for candidate in content["candidates"]}
    left = {candidate["name"] for candidate in content["screened_out"]}
    assert len(kept) + len(left) + len(content["same"]) == 9
    assert len(left) >= 4
    assert "dynamic" in kept
    assert {path.name for path in (result.output_dir / "candidates").iterdir()} == kept
    assert all(0 <= candidate["same_answer"] <= 1 for candidate in content["screened_out"])
    most = max(candidate["same_answer"] for candidate in content["screened_out"])
    assert sum(candidate["same_answer"] >= most for candidate in content["candidates"]) >= 3


@pytest.mark.slow
def test_equal_candidates_are_one(run: Compress) -> None:
    result = run(algo_list="abs_max min_max", strategy=["ptq", "ptq"], engines="onnxruntime", calibration_rows=32)
    names = [measured.name for measured in result.candidates]
    assert names[0] == "abs_max32"
    assert len(names) + len(result.same) == 2


@pytest.mark.slow
def test_engine_named_is_the_only_one_offered(run: Compress) -> None:
    result = run(strategy="ptq", algo_list="mse", engines="openvino", out="ov")
    graphs = read(result.path).manifest.graphs
    assert {engine for graph in graphs for engine in graph.engines} == {"openvino"}
    assert result.best.engine == "openvino"
    assert result.best.comparison.same_answer > 0.85


@pytest.mark.slow
def test_no_fp32_weights_lie_in_an_int8_artifact_however_large_the_model(
    model_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tersely.graphs.export._PROTOBUF_LIMIT", 1000)  # from here on weights lie beside the graph
    result = compress(model_folder(), output_dir=tmp_path / "out", strategy="dynamic", engines="onnxruntime")
    names = {path.name for path in (result.path / "onnx").iterdir()}
    assert names == {"model_quantized.onnx", "model_onnxruntime.onnx"}


@pytest.mark.slow
def test_range_at_run_time_runs_as_dynamic_and_says_so(run: Compress) -> None:
    result = run(strategy="ptq", activation_quantize_type="abs_max", engines="onnxruntime")
    assert [measured.name for measured in result.candidates] == ["dynamic"]
    assert "ptq runs as dynamic" in result.notes[0]


@pytest.mark.slow
def test_rows_that_calibrate_are_told_where_there_is_no_training(run: Compress) -> None:
    result = run(train_file=None, calibration_rows=8, **ONNXRUNTIME_MSE)
    content = json.loads((result.output_dir / "result.json").read_text())
    assert content["notes"][0].startswith("There are no training rows: ")
    assert content["rows"]["scoring"] + content["rows"]["calibration"] <= DEV


def test_metric_without_bounds_takes_any_origin(place: Places, tmp_path: Path) -> None:
    """A fraction is asked of accuracy, but an error may be any number: the metric's own bounds count."""
    here = place()
    for options, said in (({"origin_metric": 87.0}, "must be from 0 to 1"), ({"max_drop": 1.0}, "to below 1")):
        with pytest.raises(UserError, match=said):
            compress(
                input_infer_model_path=str(here.graph), eval_file=here.dev, output_dir=tmp_path / "out",
                strategy="ptq", **options,
            )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
