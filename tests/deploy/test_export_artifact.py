"""What `export` writes: an artifact that other tools read, that replays, and that is the same every time."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard

from models import HEADS, SENTENCES
from sealing import rewrite
from tersely import runtime
from tersely.artifact import read
from tersely.deploy.card import card, score_line
from tersely.deploy.from_model import write_artifact
from tersely.engines import installed, load
from tersely.errors import UserError
from tersely.models.folder import open_folder
from tersely.tasks.options import TaskOptions
from tersely.tasks.sequence_classification import TextExample

pytestmark = pytest.mark.slow  # an export takes five seconds and more

ROWS = [TextExample(text, None, index % 3) for index, text in enumerate(SENTENCES * 5)]


@pytest.fixture(scope="module")
def scored(model_folder, tmp_path_factory):
    """An artifact of another family, with int32 inputs, a score and settings of its own."""
    opened = open_folder(model_folder(HEADS[0], "roberta"), TaskOptions(max_seq_length=40, metric="macro_f1"))
    return write_artifact(opened, tmp_path_factory.mktemp("scored") / "artifact", input_dtype="int32", examples=ROWS)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("head", HEADS)
def test_artifact_holds_what_it_should_and_nothing_else(artifact_folder, model_folder, head):
    folder = artifact_folder(head)
    assert names(folder) == {
        "tersely.json", "onnx/model.onnx", "tokenizer.json", "tokenizer_config.json", "config.json", "probe.npz",
        "README.md",
    }  # fmt: skip
    assert set(read(folder).manifest.files) == names(folder) - {"tersely.json"}
    assert (folder / "config.json").read_bytes() == (model_folder(head) / "config.json").read_bytes()


def test_two_exports_of_the_same_model_are_byte_equal(artifact_folder, model_folder, tmp_path):
    again = write_artifact(open_folder(model_folder()), tmp_path / "under another name").artifact.folder
    assert names(again) == names(artifact_folder())
    for name in names(again):
        assert (again / name).read_bytes() == (artifact_folder() / name).read_bytes(), name


@pytest.mark.parametrize("engine", [name for name in ("onnxruntime", "openvino") if name in installed()])
@pytest.mark.parametrize("head", HEADS)
def test_probe_replays_to_the_same_logits(artifact_folder, head, engine):
    probe = np.load(artifact_folder(head) / "probe.npz")
    batch = {name: probe[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    runner = load(engine, artifact_folder(head) / "onnx/model.onnx", threads=1)
    outputs = runner.run(batch)
    logits = outputs[0] if len(outputs) == 1 else np.stack(outputs, -1)
    expected = probe["logits_fp32"]
    assert len(expected) == len(batch["input_ids"]) > 3
    real = batch["attention_mask"] == 1
    change = np.abs(logits - expected) if expected.ndim == 2 else np.abs(logits - expected)[real]
    assert change.max() < 1e-4
    assert np.abs(expected).max() > 0.1


def test_transformers_reads_tokenizer_and_config_of_an_artifact(artifact_folder, model_folder):
    from transformers import AutoConfig, AutoTokenizer

    ours, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (artifact_folder(), model_folder()))
    assert ours(list(SENTENCES))["input_ids"] == theirs(list(SENTENCES))["input_ids"]
    assert ours.pad_token_id == theirs.pad_token_id
    assert AutoConfig.from_pretrained(artifact_folder()).id2label == {0: "bad", 1: "fair", 2: "good"}


def test_manifest_says_score_settings_and_int32(scored):
    manifest = scored.artifact.manifest
    assert manifest.input_dtype == "int32"
    assert manifest.inputs == ("input_ids", "attention_mask")
    assert manifest.pad_token_id == 1
    assert (manifest.task["max_seq_length"], manifest.task["metric"]) == (40, "macro_f1")
    assert manifest.score["value"] == scored.score.value
    assert (manifest.score["metric"], manifest.score["rows"]) == ("macro_f1", len(ROWS))
    assert manifest.graphs[0].engines == ("onnxruntime", "openvino")
    assert set(scored.parity) == {*installed()} & {"onnxruntime", "openvino"} != set()
    assert max(scored.parity.values()) < 1e-4
    # Nothing that differs from run to run or machine to machine.
    assert "seconds" not in (scored.artifact.folder / "tersely.json").read_text()


def test_the_parents_card_is_taken_over(model_folder, tmp_path):
    parent = Path(shutil.copytree(model_folder(), tmp_path / "parent"))
    (parent / "README.md").write_text("---\nlicense: mit\nbase_model: owner/bert\n---\n# Parent\n")
    made = write_artifact(open_folder(parent), tmp_path / "artifact", examples=ROWS[:8])
    data = ModelCard.load(tmp_path / "artifact" / "README.md").data
    assert (data.license, data.base_model, data.model_name) == ("mit", "owner/bert", "parent")
    assert data.eval_results[0].metric_value == made.score.value
    again = read(tmp_path / "artifact").manifest.provenance
    assert (again.license, again.base_model) == ("mit", "owner/bert")


def test_int32_artifact_answers(scored):
    for engine in scored.parity:
        model = runtime.load(scored.artifact.folder, engine, 1)
        answers = model.predict([example.text for example in ROWS])
        assert [a.value for a in answers] == [a.value for a in scored.score.answers.by_row]


def test_engines_that_agree_to_a_millionth_of_large_logits_are_offered(model_folder, tmp_path):
    import shutil

    from safetensors.numpy import load_file, save_file

    folder = Path(shutil.copytree(model_folder(), tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"] *= 500
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    exported = write_artifact(open_folder(folder), tmp_path / "artifact")
    assert max(exported.parity.values()) > 1e-4  # else this proves nothing
    assert exported.artifact.manifest.graphs[0].engines == ("onnxruntime", "openvino")


def test_weights_beside_the_graph_are_counted_as_the_graphs(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tersely.graphs.export._PROTOBUF_LIMIT", 1000)
    artifact = write_artifact(open_folder(model_folder()), tmp_path / "artifact").artifact
    (graph,) = artifact.manifest.graphs
    assert graph.data == ("onnx/model.onnx.data",)
    assert artifact.loaded_bytes(graph) == sum(path.stat().st_size for path in (artifact.folder / "onnx").iterdir())


def test_card_tells_labels_and_score(scored):
    text = (scored.artifact.folder / "README.md").read_text(encoding="utf-8")
    assert "`bad`, `fair`, `good`" in text
    assert f"macro_f1 {100 * scored.score.value:.2f}" in text
    assert "(int32)" in text
    assert "40 tokens" in text
    assert "not scored" not in text
    assert "\nlibrary_name: tersely\npipeline_tag: text-classification\n" in text


@pytest.mark.parametrize("head", HEADS)
def test_card_says_where_nothing_was_scored_and_its_code_runs(artifact_folder, head):
    text = (artifact_folder(head) / "README.md").read_text(encoding="utf-8")
    assert "*not scored*" in text
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(code.replace("path/to/this/folder", str(artifact_folder(head))), {})  # noqa: S102


def test_card_cuts_long_lists_of_labels(scored):
    from dataclasses import replace

    labels = [f"name{i}" for i in range(50)]
    text = card("x", replace(scored.artifact.manifest, task={**scored.artifact.manifest.task, "labels": labels}))
    assert "labels (50, in order)" in text
    assert "`name19` …" in text
    assert "name20" not in text
    assert score_line(None).startswith("*not scored*")


def test_export_refuses_before_work_and_leaves_nothing(model_folder, artifact_folder, tmp_path):
    opened = open_folder(model_folder())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    for overwrite, message in ((False, "not empty"), (True, "did not write")):
        with pytest.raises(UserError, match=message):
            write_artifact(opened, tmp_path / "full", overwrite=overwrite)
    with pytest.raises(UserError, match="int16"):
        write_artifact(opened, tmp_path / "out", input_dtype="int16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"


def test_model_with_nan_is_refused_and_leaves_nothing(model_folder, tmp_path):
    import shutil

    from safetensors.numpy import load_file, save_file

    folder = Path(shutil.copytree(model_folder(), tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"][0, 0] = np.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"'classifier.weight' holds NaN"):
        write_artifact(open_folder(folder), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_manifest_with_one_changed_letter_keeps_the_artifact_from_loading(own_artifact):
    place = own_artifact / "tersely.json"
    place.write_bytes(place.read_bytes().replace(b'"bad"', b'"bed"'))
    with pytest.raises(UserError, match="The manifest has changed"):
        runtime.load(own_artifact)


@pytest.mark.parametrize("name", ["onnx/model.onnx", "tokenizer.json", "probe.npz"])
def test_one_changed_byte_keeps_the_artifact_from_loading(own_artifact, name):
    data = bytearray((own_artifact / name).read_bytes())
    data[len(data) // 2] ^= 1
    (own_artifact / name).write_bytes(data)
    with pytest.raises(UserError, match=f"file '{name}' has changed"):
        runtime.load(own_artifact)


def test_artifact_of_a_newer_format_does_not_load(own_artifact):
    rewrite(own_artifact, format_version=3)
    with pytest.raises(UserError, match=r"format version 3.*Update tersely"):
        runtime.load(own_artifact)
