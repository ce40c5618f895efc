"""The card of an artifact: what a stranger must know before running it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tersely.artifact import Graph, Manifest
from tersely.card import card

ALL, EXACT = ("all",), ("amx", "vnni")
PLAIN = Manifest(
    {"name": "sequence_classification", "labels": ["bad", "good"], "max_seq_length": 64},
    "bert", ("input_ids",), "int64", 0, (Graph("onnx/model.onnx", ("onnxruntime", "openvino"), "fp32"),),
)  # fmt: skip


def int8(strategy: str = "ptq", classes: tuple[str, ...] = ALL) -> Manifest:
    graphs = (
        Graph("onnx/model_onnxruntime.onnx", ("onnxruntime",), "int8", classes, ("onnx/model_quantized.onnx",)),
        Graph("onnx/model_quantized.onnx", ("openvino", "onnxruntime"), "int8", classes),
        Graph("onnx/model_signed.onnx", (), "int8", classes, ("onnx/model_quantized.onnx",)),
    )
    return replace(PLAIN, graphs=graphs, strategy=strategy)


def rows(text: str) -> dict[str, str]:
    """The card's table."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {parts[0].strip("`"): parts[1] for parts in lines if len(parts) == 2}


def test_every_graph_names_its_engines_or_those_it_is_for() -> None:
    table = rows(card("mine", int8("ptq+embeddings")))
    assert table["strategy"] == "ptq+embeddings"
    assert table["onnx/model_onnxruntime.onnx"] == "INT8, for onnxruntime, right on every CPU"
    assert table["onnx/model_quantized.onnx"] == "INT8, for openvino, onnxruntime, right on every CPU"
    assert table["onnx/model_signed.onnx"].startswith("INT8, for other tools (TensorRT")
    assert rows(card("mine", PLAIN))["onnx/model.onnx"] == "FP32, for onnxruntime, openvino"


def test_cpu_classes_are_told_where_they_matter() -> None:
    text = card("mine", int8(classes=EXACT))
    assert rows(text)["onnx/model_onnxruntime.onnx"].endswith("right on CPUs of the classes amx, vnni alone")
    assert "elsewhere answers may be wrong" in " ".join(text.split())
    for manifest in (int8(), PLAIN):
        assert "may be wrong" not in card("mine", manifest)


@pytest.mark.parametrize("strategy", ["ptq", "dynamic", "embeddings", "ptq+embeddings", "dynamic+embeddings", "none"])
def test_dynamic_alone_says_that_an_answer_may_depend_on_its_batch(strategy: str) -> None:
    said = "An answer may therefore depend, a little, on the rows that share its batch" in " ".join(
        card("mine", int8(strategy)).split()
    )
    assert said == ("dynamic" in strategy)


def test_score_tells_its_rows() -> None:
    score = {"metric": "accuracy", "value": 0.9, "interval": [0.8, 0.95], "rows": 40,
             "on": "eval rows, which also chose", "engine": "openvino"}  # fmt: skip
    table = rows(card("mine", replace(int8(), score=score)))
    assert table["score"] == "accuracy 90.00 (80.00 to 95.00) on 40 eval rows, which also chose, openvino"
    assert rows(card("mine", int8()))["score"].startswith("*not scored*")


def test_card_is_markdown_with_the_code_apart() -> None:
    for manifest in (PLAIN, int8("dynamic", EXACT)):
        text = card("mine", manifest)
        assert text.count("```") == 2
        assert "\n\n\n" not in text
