"""Engines are timed on real artifacts, and the fastest one serves."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from tersely import engines
from tersely.serve import engine_trial
from tersely.serve.engine_trial import candidates, choose_each, fastest_engines, timed
from tersely.serve.run import open_models
from tersely.serve.server_options import ServerOptions
from tiny_artifacts import OWN, change_weight, make_int8

needs_both = pytest.mark.skipif("openvino" not in engines.installed(), reason="one engine is no choice")


@needs_both
@pytest.mark.slow
def test_every_engine_is_timed_against_what_auto_gives(artifact_folder):
    found = timed(artifact_folder(), 1)
    assert found["auto"] == 1.0
    assert len(found) == len(candidates(artifact_folder())) == 2
    assert all(ratio > 0 for ratio in found.values())


@needs_both
@pytest.mark.slow
def test_a_process_of_its_own_chooses(artifact_folder):
    names = {"one": artifact_folder(), "two": artifact_folder("TokenClassification")}
    found = fastest_engines(names, 1)
    assert set(found) <= set(names)
    assert set(found.values()) <= set(candidates(artifact_folder()))


@needs_both
@pytest.mark.slow
def test_the_faster_one_is_chosen(artifact_folder, monkeypatch):
    """How far ahead an engine must be decides here: by nothing at all, and by more than any is."""
    folders = {"m": str(artifact_folder())}
    monkeypatch.setattr(engine_trial, "AHEAD", 1e-9)
    assert set(choose_each(folders, 1)) == {"m"}
    monkeypatch.setattr(engine_trial, "AHEAD", 1e9)
    assert choose_each(folders, 1) == {}


@needs_both
def test_what_answers_wrong_is_no_candidate(tmp_path):
    folder = make_int8(tmp_path / "int8")
    assert set(candidates(folder)) == {"onnxruntime", "openvino"}
    change_weight(folder, OWN, "second_quantized", lambda weight: np.ascontiguousarray(-weight))
    assert candidates(folder) == ["openvino"]


def test_what_was_chosen_is_loaded(folders):
    name, folder = next(iter(folders.items()))
    (model,) = open_models(ServerOptions({name: folder}, engines={name: "onnxruntime"})).values()
    assert model.predictor.engine.name == "onnxruntime"


def test_what_is_loaded_is_not_searched_for_garbage(folders):
    name, folder = next(iter(folders.items()))
    gc.unfreeze()
    try:
        models = open_models(ServerOptions({name: folder}, engine="onnxruntime"))
        assert gc.get_freeze_count() > 1000
        assert not any(found is models[name].predictor for found in gc.get_objects())
    finally:
        gc.unfreeze()


def test_a_model_that_does_not_load_is_left_to_who_loads_it(artifact_folder, own_artifact: Path, tmp_path):
    for graph in (own_artifact / "onnx").iterdir():
        graph.write_bytes(b"damaged")
    assert fastest_engines({"broken": own_artifact}, 1) == {}
