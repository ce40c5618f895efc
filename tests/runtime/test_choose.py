"""Which graph on which engine: the order of each class, what was remembered, the warning, and where it is kept."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tersely import engines, runtime
from tersely.artifact import Graph, read
from tersely.engines.cpu import CLASSES, cpu
from tersely.engines.saturation import effective_class
from tersely.errors import Failure, UserError
from tersely.runtime import ClassWarning, choose
from tersely.runtime.choose import (
    FILE,
    Remembered,
    cache_folder,
    pairs,
    prepare,
    ranked,
    recall,
    remember,
    remembered_first,
)
from tiny_artifacts import OWN, PLAIN, SHARED, make, make_int8, reseal

HERE = cpu()
OURS = Graph(OWN, ("onnxruntime",), "int8")
BOTH = Graph(SHARED, ("openvino", "onnxruntime"), "int8")
FLOAT = Graph(PLAIN, ("onnxruntime", "openvino"), "fp32")
ELSEWHERE = tuple(name for name in CLASSES if name != HERE.cpu_class)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TERSELY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def artifact(tmp_path) -> Path:
    """Graphs that are never loaded."""
    folder = make(tmp_path / "artifact")
    for path in (OWN, SHARED):
        (folder / path).write_bytes(b"a graph")
    reseal(folder, graphs=(OURS, BOTH))
    return folder


def order(graphs, cpu_class):
    return [(pair.graph.path, pair.engine) for pair in ranked(graphs, lambda graph, engine: cpu_class)]


@pytest.mark.parametrize("graphs", list(itertools.permutations((OURS, BOTH))))
@pytest.mark.parametrize("cpu_class", ["avx2", "other"])
def test_saturating_class_takes_onnxruntimes_own_graph_and_openvino_last(graphs, cpu_class):
    assert order(graphs, cpu_class) == [(OWN, "onnxruntime"), (SHARED, "onnxruntime"), (SHARED, "openvino")]


@pytest.mark.parametrize("graphs", list(itertools.permutations((OURS, BOTH))))
@pytest.mark.parametrize("cpu_class", ["vnni", "amx"])
def test_exact_class_takes_openvino_then_onnxruntimes_own_graph(graphs, cpu_class):
    assert order(graphs, cpu_class) == [(SHARED, "openvino"), (OWN, "onnxruntime"), (SHARED, "onnxruntime")]


@pytest.mark.parametrize("cpu_class", CLASSES)
def test_float_graphs_run_on_onnxruntime_first(cpu_class):
    assert order([FLOAT], cpu_class) == [(PLAIN, "onnxruntime"), (PLAIN, "openvino")]


def test_openvinos_int8_is_taken_after_float_only_where_it_is_slower():
    assert order([BOTH, FLOAT], "avx2")[-1] == (SHARED, "openvino")
    assert order([BOTH, FLOAT], "vnni")[0] == (SHARED, "openvino")


def test_graph_for_other_classes_comes_after_one_that_is_right():
    wrong = replace(OURS, cpu_classes=("amx", "vnni"))
    found = ranked([wrong, BOTH], lambda graph, engine: "avx2")
    assert [(pair.graph.path, pair.engine, pair.fits) for pair in found] == [
        (SHARED, "onnxruntime", True), (SHARED, "openvino", True), (OWN, "onnxruntime", False),
    ]  # fmt: skip


def test_class_may_differ_by_engine():
    made_for = replace(BOTH, cpu_classes=("vnni",))
    found = ranked([made_for], lambda graph, engine: {"openvino": "vnni", "onnxruntime": "avx2"}[engine])
    assert [(pair.engine, pair.fits) for pair in found] == [("openvino", True), ("onnxruntime", False)]


def test_engine_that_no_table_knows_comes_last():
    assert order([replace(BOTH, engines=("tensorrt", "openvino"))], "vnni")[-1] == (SHARED, "tensorrt")


def test_graphs_of_one_rank_keep_their_order():
    graphs = [replace(OURS, path=f"{name}.onnx") for name in "bca"]
    assert [path for path, _ in order(graphs, "avx2")] == ["b.onnx", "c.onnx", "a.onnx"]


def test_classes_of_this_machine_are_those_measured(artifact):
    found = pairs(read(artifact))
    assert len(found) == 3
    for pair in found:
        assert pair.cpu_class == effective_class(pair.engine)


def test_auto_is_the_first_by_rank(artifact):
    opened = read(artifact)
    first = pairs(opened)[0]
    assert choose(opened) == (first.graph, first.engine)


def test_named_engine_gets_its_own_graph(artifact):
    for graphs in ((OURS, BOTH), (BOTH, OURS)):
        reseal(artifact, graphs=graphs)
        assert choose(read(artifact), "onnxruntime") == (OURS, "onnxruntime")
        assert choose(read(artifact), "openvino") == (BOTH, "openvino")


def test_engine_without_a_graph_is_refused(artifact):
    with pytest.raises(UserError, match=r"no graph for engine 'torch'. It has: onnxruntime, openvino."):
        choose(read(artifact), "torch")


def test_artifact_for_engines_that_are_not_here_is_refused(artifact):
    reseal(artifact, graphs=(replace(OURS, engines=("tensorrt",)),))
    with pytest.raises(UserError, match=r"No engine for this artifact is installed here \(tensorrt\)"):
        choose(read(artifact))
    reseal(artifact, graphs=(replace(OURS, engines=()),))
    with pytest.raises(UserError, match="it names none"):
        choose(read(artifact))


def test_auto_with_a_precision_takes_an_engine_that_offers_it(artifact):
    (artifact / PLAIN).write_bytes(b"a graph")
    reseal(artifact, graphs=(FLOAT,))
    assert choose(read(artifact), precision="bf16") == (FLOAT, "openvino")
    assert choose(read(artifact), precision="fp64") == (FLOAT, "onnxruntime")  # which refuses it by name


def caught(*arguments, **options):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = choose(*arguments, **options)
    return found, [warning for warning in seen if warning.category is ClassWarning]


def test_artifact_for_other_classes_is_loaded_with_one_warning(artifact):
    reseal(artifact, graphs=tuple(replace(graph, cpu_classes=ELSEWHERE) for graph in (FLOAT, FLOAT)))
    (graph, engine), seen = caught(read(artifact))
    assert (graph.path, engine) == (PLAIN, "onnxruntime")
    (warning,) = seen
    said = str(warning.message)
    assert said.startswith(f"{artifact}: The artifact was made for the CPU classes {', '.join(ELSEWHERE)}; ")
    assert f"this machine is {HERE.cpu_class}." in said
    assert f"tersely check {artifact}." in said
    assert "--cpu_classes all" in said
    assert caught(read(artifact))[1] == []
    assert caught(read(artifact), "openvino")[1] == []


def test_warning_says_that_sums_saturate_where_they_do(artifact):
    reseal(artifact, graphs=(replace(OURS, cpu_classes=("none of these",)),))
    _, (warning,) = caught(read(artifact), "onnxruntime")
    from tersely.engines.saturation import saturates

    assert ("where INT8 sums saturate" in str(warning.message)) == saturates("onnxruntime")


def test_no_warning_where_the_class_is_right(artifact):
    assert caught(read(artifact))[1] == []
    reseal(artifact, graphs=(replace(FLOAT, cpu_classes=(HERE.cpu_class,)),))
    assert caught(read(artifact))[1] == []


def test_warning_points_at_the_caller_of_load(tmp_path):
    folder = make(tmp_path / "other")
    reseal(folder, graphs=(replace(FLOAT, cpu_classes=ELSEWHERE),))
    with pytest.warns(ClassWarning) as seen:
        runtime.load(folder, threads=1)
    assert seen[0].filename == __file__


SLOWEST = Remembered(SHARED, "openvino", "int8")


def test_what_was_remembered_is_taken_with_so_many_threads_only(artifact, cache):
    opened = read(artifact)
    before = choose(opened)
    last = pairs(opened)[-1]
    assert remember(artifact, {1: Remembered(last.graph.path, last.engine, "int8")}) == cache / FILE
    assert choose(opened, threads=1) == (last.graph, last.engine)
    assert choose(opened, threads=HERE.cores + 7) == before
    assert choose(opened, "onnxruntime", threads=1) == (OURS, "onnxruntime")


def test_all_cores_is_what_none_means(artifact):
    remember(artifact, {HERE.cores: SLOWEST})
    assert choose(read(artifact)) == (BOTH, "openvino")


def test_remembered_precision_is_the_one_to_run_in(artifact):
    reseal(artifact, graphs=(FLOAT,))
    remember(artifact, {1: Remembered(PLAIN, "openvino", "bf16")})
    assert choose(read(artifact), threads=1) == (replace(FLOAT, precision="bf16"), "openvino")
    assert choose(read(artifact), threads=1, precision="fp32") == (FLOAT, "onnxruntime")


def test_other_artifact_is_not_meant(artifact):
    remember(artifact, {1: SLOWEST})
    reseal(artifact, strategy="other")
    assert recall(artifact, 1) is None


def test_memories_stand_side_by_side(artifact, tmp_path):
    other = make(tmp_path / "another", seed=1)
    remember(artifact, {1: SLOWEST})
    remember(other, {1: Remembered(PLAIN, "openvino", "fp32"), 2: Remembered(PLAIN, "onnxruntime", "fp32")})
    assert recall(artifact, 1) == SLOWEST
    assert recall(other, 1) == Remembered(PLAIN, "openvino", "fp32")
    assert recall(other, 2) == Remembered(PLAIN, "onnxruntime", "fp32")
    assert recall(other, 3) is None


def test_memory_of_a_graph_that_has_gone_is_passed_over():
    offered = ranked([OURS, BOTH], lambda graph, engine: "avx2")
    for gone in (Remembered("gone.onnx", "openvino", "int8"), Remembered(OWN, "openvino", "int8"), None):
        assert remembered_first(offered, gone) == offered


def test_memory_of_a_graph_for_another_class_is_passed_over():
    offered = ranked([OURS, replace(BOTH, cpu_classes=("vnni",))], lambda graph, engine: "avx2")
    assert remembered_first(offered, SLOWEST)[0] == offered[0]
    alone = ranked([replace(BOTH, cpu_classes=("vnni",))], lambda graph, engine: "avx2")
    assert remembered_first(alone, SLOWEST)[0].engine == "openvino"  # nothing is right: the fastest then


@pytest.mark.parametrize("content", ["", "{", "[]", "7", "{}", '{"a": 1}', "[" * 100_000, "\xff"])
def test_damaged_memory_is_as_good_as_none(content, artifact, cache):
    remember(artifact, {1: SLOWEST})
    (cache / FILE).write_text(content, encoding="latin-1")
    assert recall(artifact, 1) is None
    choose(read(artifact), threads=1)
    remember(artifact, {1: SLOWEST})
    assert recall(artifact, 1) == SLOWEST


@pytest.mark.parametrize(
    "entry", [None, 3, [], {}, {"choice": {}}, {"choice": {"graph": 1}}, {"choice": "onnxruntime"}]
)
def test_damaged_entry_is_as_good_as_none(entry, artifact, cache):
    remember(artifact, {1: SLOWEST})
    (key,) = json.loads((cache / FILE).read_text())
    (cache / FILE).write_text(json.dumps({key: entry}))
    assert recall(artifact, 1) is None


def test_memory_is_not_in_the_artifact_and_leaves_no_scraps(artifact, cache):
    before = {path: path.stat().st_mtime_ns for path in artifact.rglob("*")}
    remember(artifact, {1: SLOWEST})
    assert {path: path.stat().st_mtime_ns for path in artifact.rglob("*")} == before
    assert [path.name for path in cache.iterdir()] == [FILE]


def test_cache_that_cannot_be_written_is_said(artifact, cache):
    cache.write_text("a file in the way")
    for work in (prepare, lambda: remember(artifact, {1: SLOWEST})):
        with pytest.raises(Failure, match="The cache cannot be written") as seen:
            work()
        assert "$TERSELY_CACHE" in str(seen.value)
    assert recall(artifact, 1) is None


@pytest.mark.skipif(os.name == "nt", reason="a folder in the place of a file is another error there")
def test_file_that_cannot_be_replaced_is_said(artifact, cache):
    (cache / FILE / "inside").mkdir(parents=True)
    with pytest.raises(Failure, match="The cache cannot be written"):
        remember(artifact, {1: SLOWEST})


def test_cache_is_where_the_system_keeps_caches():
    home = Path.home()
    assert cache_folder({"TERSELY_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "Linux") == Path("/a")
    assert cache_folder({"XDG_CACHE_HOME": "/b"}, "Linux") == Path("/b/tersely")
    assert cache_folder({"XDG_CACHE_HOME": ""}, "Linux") == home / ".cache" / "tersely"
    assert cache_folder({}, "Darwin") == home / "Library" / "Caches" / "tersely"
    assert cache_folder({"LOCALAPPDATA": "/l"}, "Windows") == Path("/l/tersely/Cache")
    assert cache_folder({}, "Windows") == home / "AppData" / "Local" / "tersely" / "Cache"


def test_loaded_is_what_was_chosen(tmp_path):
    folder = make_int8(tmp_path / "int8")
    first = pairs(read(folder))[0]
    assert runtime.load(folder, threads=1).engine.name == first.engine
    other = next(name for name in ("openvino", "onnxruntime") if name != first.engine)
    remember(folder, {1: Remembered(SHARED, other, "int8")})
    loaded = runtime.load(folder, threads=1)
    assert (loaded.engine.name, loaded.engine.precision) == (other, "int8")
    assert loaded.predict("a quick fox") == loaded.predict(["a quick fox"])


def test_providers_choose_onnxruntime(tmp_path):
    folder = make_int8(tmp_path / "int8")
    remember(folder, {1: SLOWEST})
    assert runtime.load(folder, threads=1, providers=["CPUExecutionProvider"]).engine.name == "onnxruntime"


def test_engines_here_are_those_the_tests_speak_of():
    assert {"onnxruntime", "openvino"} <= set(engines.installed())
