"""The card of an artifact: what a stranger must know before running it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from tersely.artifact import Graph, Manifest, Provenance
from tersely.deploy.card import card, finetuned_card
from tersely.models.folder import read_provenance

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


SCORE = {"metric": "mcc", "value": 0.5613, "interval": [0.45, 0.66], "rows": 408,
         "on": "eval rows, which also chose", "engine": "openvino"}  # fmt: skip
PARENT = Provenance("owner/bert-mrpc", "other", "my-licence", "LICENCE.md", ("en", "zh"), ("glue",))


def test_the_hub_reads_the_card() -> None:
    manifest = replace(int8("dynabert+ptq"), score=SCORE, provenance=PARENT)
    data = ModelCard(card("mine", manifest)).data
    assert (data.library_name, data.pipeline_tag) == ("tersely", "text-classification")
    assert (data.base_model, data.base_model_relation) == ("owner/bert-mrpc", "quantized")
    assert (data.license, data.license_name, data.license_link) == ("other", "my-licence", "LICENCE.md")
    assert (data.language, data.datasets, data.metrics) == (["en", "zh"], ["glue"], ["matthews_correlation"])
    assert set(data.tags) == {"onnx", "openvino", "int8", "pruned"}
    (result,) = data.eval_results
    assert data.model_name == "mine"
    assert (result.task_type, result.metric_type) == ("text-classification", "matthews_correlation")
    assert (result.metric_name, result.metric_value) == ("mcc", 0.5613)
    assert (result.dataset_name, result.dataset_args) == ("eval rows, which also chose", {"rows": 408})
    assert result.metric_args == {"interval": [0.45, 0.66], "engine": "openvino"}


def test_the_card_says_no_more_than_is_known() -> None:
    data = ModelCard(card("mine", PLAIN)).data.to_dict()
    assert data == {"library_name": "tersely", "pipeline_tag": "text-classification", "tags": ["onnx", "openvino"]}
    named = ModelCard(card("mine", replace(PLAIN, provenance=Provenance("owner/name")))).data
    assert named.base_model == "owner/name"
    assert "base_model_relation" not in named.to_dict()


def test_a_fine_tuned_folder_passes_its_encoders_licence_on_but_not_what_that_was_trained_on(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(finetuned_card("mine", "token_classification", PARENT, SCORE))
    data = ModelCard.load(tmp_path / "README.md").data
    assert (data.library_name, data.pipeline_tag) == ("transformers", "token-classification")
    assert (data.base_model, data.base_model_relation) == ("owner/bert-mrpc", "finetune")
    assert data.eval_results[0].metric_value == 0.5613
    assert read_provenance(tmp_path, {}) == replace(PARENT, datasets=())


@pytest.mark.parametrize(
    ("text", "config", "expected"),
    [
        ("---\nlicense: mit\nlanguage: de\n---\n# A", {}, Provenance(license="mit", language=("de",))),
        ("---\r\nlicense: mit\r\n---\r\n# A", {}, Provenance(license="mit")),
        ("---\nbase_model:\n- owner/first\n- owner/second\n---\n", {}, Provenance("owner/first")),
        ("---\nbase_model: owner/card\n---\n", {"_name_or_path": "owner/config"}, Provenance("owner/card")),
        ("# A card without a head", {"_name_or_path": "owner/config"}, Provenance("owner/config")),
        ("---\nlicense: [mit\n---\n", {}, Provenance()),
        ("---\n- a list\n---\n", {}, Provenance()),
        ("---\nlicense: 3\nlanguage: {en: 1}\n---\n", {}, Provenance()),
        ("", {"_name_or_path": "bert-base-uncased"}, Provenance()),
        ("", {"_name_or_path": "./out/model"}, Provenance()),
        ("", {"_name_or_path": "/models/mine"}, Provenance()),
        ("", {"_name_or_path": "out/model/checkpoint-3"}, Provenance()),
    ],
)
def test_what_a_parent_says_of_itself(text: str, config: dict, expected: Provenance, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(text.encode())
    assert read_provenance(tmp_path, config) == expected


def test_a_local_folder_is_no_model_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out" / "model").mkdir(parents=True)
    assert read_provenance(tmp_path, {"_name_or_path": "out/model"}) == Provenance()


def test_a_folder_of_the_hubs_cache_names_its_model(tmp_path: Path) -> None:
    folder = tmp_path / "models--owner--bert-mrpc" / "snapshots" / "0123abcd"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("---\nbase_model: owner/bert\nlicense: mit\n---\n")
    assert read_provenance(folder, {}) == Provenance("owner/bert-mrpc", "mit")
