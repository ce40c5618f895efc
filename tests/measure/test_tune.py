"""Tuning: the fastest of those that answer right is remembered, and `auto` takes it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tersely import runtime
from tersely.artifact import Graph, read
from tersely.engines.cpu import cpu
from tersely.errors import Failure, UserError
from tersely.measure.benchmark import Timing
from tersely.measure.check import runnable
from tersely.measure.tune import Cell, Setup, contenders, eligible, fastest, tune
from tersely.runtime.choose import ranked, recall
from tiny_artifacts import OWN, PLAIN, SHARED, change_weight, copy, make, make_int8, reseal

QUICK = {"seconds": 0.01, "batch_sizes": (1, 2)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TERSELY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def int8(tmp_path_factory):
    """An INT8 artifact. Not to be written to."""
    return make_int8(tmp_path_factory.mktemp("artifacts") / "int8", "tags")


def test_best_geometric_mean_is_remembered_and_loaded(int8):
    done = tune(int8, threads=(1, 2), **QUICK)
    pairs = {(OWN, "onnxruntime"), (SHARED, "onnxruntime"), (SHARED, "openvino")}
    assert len(done.cells) == len(pairs) * 2 * 2
    assert {(c.threads, c.batch, c.length, c.timing.model, c.timing.engine) for c in done.cells} == {
        (threads, batch, 32, *pair) for threads in (1, 2) for batch in (1, 2) for pair in pairs
    }
    first = runnable(read(int8))[0]
    assert [chosen.threads for chosen in done.chosen] == [1, 2]
    for chosen in done.chosen:
        means = {}
        for pair in pairs:
            ratios = [
                cell.timing.ratio
                for cell in done.cells
                if cell.threads == chosen.threads and (cell.timing.model, cell.timing.engine) == pair
            ]
            means[pair] = math.prod(ratios) ** (1 / len(ratios))
        assert means[chosen.graph, chosen.engine] == max(means.values()) == pytest.approx(chosen.gain)
        assert chosen.before == f"{first.graph.path} {first.engine}"
        assert means[first.graph.path, first.engine] == 1.0
        assert recall(int8, chosen.threads).graph == chosen.graph
        graph, engine = runtime.choose(read(int8), threads=chosen.threads)
        assert (graph.path, engine) == (chosen.graph, chosen.engine)
        assert runtime.load(int8, threads=chosen.threads).engine.name == chosen.engine
    assert not done.left_out
    assert done.cpu == cpu()
    assert done.place.is_file()


def test_one_thread_and_all_cores_are_the_rule(tmp_path):
    done = tune(make(tmp_path / "fp32"), **QUICK)
    assert [chosen.threads for chosen in done.chosen] == sorted({1, cpu().cores})
    assert {cell.timing.engine for cell in done.cells} >= {"onnxruntime", "openvino"}


def test_what_answers_wrong_is_not_chosen_however_fast(int8, tmp_path):
    folder = copy(int8, tmp_path / "wrong")
    change_weight(folder, OWN, "second_quantized", lambda weight: np.ascontiguousarray(-weight))
    done = tune(folder, threads=(1,), **QUICK)
    assert done.left_out == {f"{OWN} onnxruntime": "Its answers are not those recorded."}
    assert {cell.timing.model for cell in done.cells} == {SHARED}
    assert done.chosen[0].graph == SHARED


def test_nothing_to_choose_from_is_a_failure(tmp_path, cache):
    folder = make(tmp_path / "wrong")
    change_weight(folder, PLAIN, "second", lambda weight: -weight)
    with pytest.raises(
        Failure, match=r"There is nothing to choose from. onnx/model.onnx onnxruntime: Its answers"
    ) as seen:
        tune(folder, threads=(1,), **QUICK)
    assert f"tersely check {folder}" in str(seen.value)
    assert not (cache / "tune.json").exists()


def test_graph_that_does_not_load_is_left_out(int8, tmp_path):
    folder = copy(int8, tmp_path / "broken")
    (folder / SHARED).write_bytes(b"no graph")
    reseal(folder)
    fit, left_out = eligible(read(folder), contenders(runnable(read(folder)), bf16=False))
    assert [(choice.graph.path, choice.engine) for choice in fit] == [(OWN, "onnxruntime")]
    assert set(left_out) == {f"{SHARED} onnxruntime", f"{SHARED} openvino"}
    assert all("cannot load this graph" in reason for reason in left_out.values())


def test_artifact_without_a_probe_can_be_tuned(tmp_path):
    folder = make(tmp_path / "without")
    (folder / "probe.npz").unlink()
    reseal(folder)
    competing = 3 if cpu().bf16 else 2  # two engines, and OpenVINO in bf16 where the CPU has it
    assert len(tune(folder, threads=(1,), **QUICK).cells) == 2 * competing


def test_bf16_competes_where_the_cpu_has_it_and_only_with_float_graphs():
    graphs = [Graph(PLAIN, ("onnxruntime", "openvino"), "fp32"), Graph(SHARED, ("openvino",), "int8")]
    offered = ranked(graphs, lambda graph, engine: "amx")
    without, with_it = contenders(offered, bf16=False), contenders(offered, bf16=True)
    assert with_it[: len(without)] == without
    assert with_it[len(without) :] == [Setup(graphs[0], "openvino", "bf16")]
    assert [choice.spelling for choice in with_it] == ["openvino", "onnxruntime", "openvino", "openvino-bf16"]


def test_bf16_that_the_engine_lacks_is_left_out_with_its_reason(tmp_path):
    opened = read(make(tmp_path / "fp32"))
    fit, left_out = eligible(opened, contenders(runnable(opened), bf16=True))
    spelled = [choice.spelling for choice in fit]
    assert spelled[:2] == ["onnxruntime", "openvino"]
    if not cpu().bf16:
        assert list(left_out) == [f"{PLAIN} openvino-bf16"]
        assert "bfloat16" in left_out[f"{PLAIN} openvino-bf16"]


def timed(threads, name, ratio):
    return Cell(threads, 1, 8, Timing(name, "engine", 1.0, ratio, (ratio, ratio), 7, 1.0))


@given(st.lists(st.lists(st.floats(0.1, 10), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 2))
@settings(max_examples=50, deadline=None)
def test_fastest_is_the_best_product_of_ratios(batches, first):
    cells = [timed(1, f"graph{i}", ratio) for batch in batches for i, ratio in enumerate(batch)]
    others = [timed(2, "other", 99.0)]
    products = np.prod(np.array(batches), axis=0) ** (1 / len(batches))
    found = fastest(1, cells + others)
    assert found.gain == pytest.approx(products.max())
    assert products[int(found.graph.removeprefix("graph"))] == pytest.approx(products.max())
    assert (found.threads, found.before) == (1, "graph0 engine")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"threads": (0,)}, "The 'threads' option must hold numbers of at least 1. Got 0."),
        ({"threads": ()}, "The 'threads' option must hold numbers of at least 1. Got none."),
        ({"batch_sizes": (4, -1)}, "The 'batch_sizes' option must hold numbers of at least 1. Got -1."),
        ({"seconds": 0}, "The 'seconds' option must be above 0. Got 0."),
        ({"seconds": math.nan}, "The 'seconds' option must be above 0."),
    ],
)
def test_what_cannot_be_tuned_is_refused(options, said, int8):
    with pytest.raises(UserError, match=said):
        tune(int8, **options)


def test_cache_that_cannot_be_written_is_said_before_anything_is_timed(int8, cache):
    cache.write_text("in the way")
    with pytest.raises(Failure, match="The cache cannot be written"):
        tune(int8, threads=(1,), seconds=1000)


def test_graphs_for_other_classes_do_not_compete(int8, tmp_path):
    folder = copy(int8, tmp_path / "other")
    own, shared = read(folder).manifest.graphs
    reseal(folder, graphs=(replace(own, cpu_classes=("none such",)), shared))
    done = tune(folder, threads=(1,), **QUICK)
    assert {cell.timing.model for cell in done.cells} == {SHARED}
