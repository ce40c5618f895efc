"""OpenVINO's own form is read by plain openvino, without tersely."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import pytest
from tokenizers import Tokenizer

import tiny_artifacts
from tersely.artifact import read
from tersely.deploy.layouts import OpenVinoLayout, lay_out


@pytest.mark.parametrize("kind", ["text", "tags", "question"])
def test_plain_openvino_gives_the_models_numbers(kind: str, tmp_path: Path) -> None:
    parent = read(tiny_artifacts.make(tmp_path / "artifact", kind))
    folder = lay_out(parent, tmp_path / "ir", OpenVinoLayout()).artifact.folder
    with np.load(folder / "probe.npz") as probe:
        feed = {name: probe[name] for name in ("input_ids", "attention_mask")}
    core = openvino.Core()
    compiled = core.compile_model(folder / "openvino_model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    outputs = compiled(feed)
    model = tiny_artifacts.Numpy(Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size(), kind)
    names = ["start_logits", "end_logits"] if kind == "question" else ["logits"]
    for name, expected in zip(names, model.run(feed), strict=True):
        assert np.abs(outputs[name] - expected).max() < 1e-4


def test_int8_weights_stay_int8_and_answers_the_graphs_own(tmp_path: Path) -> None:
    parent = read(tiny_artifacts.make_int8(tmp_path / "artifact"))
    folder = lay_out(parent, tmp_path / "ir", OpenVinoLayout()).artifact.folder
    core = openvino.Core()
    with np.load(folder / "probe.npz") as probe:
        feed = {name: probe[name] for name in ("input_ids", "attention_mask")}
    hint = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    places = (folder / "openvino_model.xml", parent.folder / "onnx/model_quantized.onnx")
    ours, theirs = (core.compile_model(place, "CPU", hint)(feed)["logits"] for place in places)
    assert np.array_equal(ours, theirs)
    constants = [node for node in core.read_model(places[0]).get_ordered_ops() if node.get_type_name() == "Constant"]
    shapes = {tuple(node.shape) for node in constants if node.get_element_type() == openvino.Type.i8}
    assert (tiny_artifacts.WIDTH, tiny_artifacts.WIDTH) in shapes


def test_fp32_weights_are_not_rounded_to_half(tmp_path: Path) -> None:
    parent = read(tiny_artifacts.make(tmp_path / "artifact"))
    folder = lay_out(parent, tmp_path / "ir", OpenVinoLayout()).artifact.folder
    nodes = openvino.Core().read_model(folder / "openvino_model.xml").get_ordered_ops()
    types = {node.get_element_type().get_type_name() for node in nodes if node.get_type_name() == "Constant"}
    assert "f32" in types
    assert "f16" not in types
