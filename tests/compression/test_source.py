"""What can be compressed: model folders and bare graphs of any exporter, with config and tokenizer where they lie."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer

from compressible import Place
from folders import digests
from tersely import engines
from tersely.artifact import read
from tersely.compression.parents import find_model, open_model
from tersely.deploy.export import GRAPH
from tersely.errors import UserError
from tersely.tasks import QuestionAnswering, SequenceClassification
from tersely.tasks.options import TaskOptions

Places = Callable[..., Place]
PLAIN = TaskOptions()


def bare(place: Place, folder: Path) -> Path:
    """The graph alone."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(place.graph, folder / "model.onnx"))


def with_config(place: Place, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(place.folder / name, folder / name)


def test_graph_is_found_with_and_without_its_ending(place: Places) -> None:
    found, prefix = (find_model(None, path, PLAIN) for path in (place().graph, place().graph.with_suffix("")))
    assert found == prefix or (found.graph, found.name) == (prefix.graph, prefix.name)
    assert found.graph == place().graph
    assert isinstance(found.task, SequenceClassification)
    assert found.size == place().graph.stat().st_size


@pytest.mark.parametrize("layout", ["beside", "above", "elsewhere"])
def test_config_and_tokenizer_are_found(layout: str, place: Places, tmp_path: Path) -> None:
    graph = bare(place(), tmp_path / "mine" / "onnx")
    folder = {"beside": graph.parent, "above": tmp_path / "mine", "elsewhere": tmp_path / "model"}[layout]
    with_config(place(), folder)
    origin = find_model(folder if layout == "elsewhere" else None, graph, PLAIN)
    assert origin.path.resolve() == folder.resolve()
    assert origin.name == "mine"
    assert find_model(folder, shutil.copy(graph, tmp_path / "other.onnx"), PLAIN).name == "other"


def test_graph_without_config_says_what_to_do(place: Places, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config.json beside the graph.*Name the model's folder too"):
        find_model(None, bare(place(), tmp_path), PLAIN)


def test_nothing_named_says_what_is_needed() -> None:
    with pytest.raises(UserError, match=r"A model is needed.*input_infer_model_path"):
        find_model(None, None, PLAIN)


def test_settings_of_an_artifact_are_the_defaults_of_its_graph(place: Places, tmp_path: Path) -> None:
    origin = find_model(None, place().graph, TaskOptions(max_seq_length=17, metric="macro_f1"))
    opened = open_model(origin, tmp_path)
    graph = opened.fp32.path(GRAPH)
    again = find_model(None, graph, PLAIN).task
    assert (again.max_seq_length, again.metric, again.labels) == (17, "macro_f1", ("bad", "fair", "good"))
    assert find_model(None, graph, TaskOptions(max_seq_length=9)).task.max_seq_length == 9


def test_artifact_instead_of_a_model_is_refused_with_the_way_out(place: Places, tmp_path: Path) -> None:
    artifact = open_model(find_model(None, place().graph, PLAIN), tmp_path).fp32.folder
    with pytest.raises(UserError, match="artifact already") as caught:
        find_model(artifact, None, PLAIN)
    named = str(caught.value).split("input_infer_model_path ")[1]
    assert find_model(None, named, PLAIN).graph == artifact / GRAPH
    (artifact / GRAPH).unlink()
    with pytest.raises(UserError) as caught:
        find_model(artifact, None, PLAIN)
    assert "input_infer_model_path" not in str(caught.value)


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_opened_graph_gives_what_the_model_gives(head: str, place: Places, tmp_path: Path) -> None:
    here = place(head)
    before = digests(here.folder)
    opened = open_model(find_model(None, here.graph, PLAIN), tmp_path)
    assert digests(here.folder) == before
    assert opened.digest == before[here.graph]
    artifact = read(opened.fp32.folder)
    ids = Tokenizer.from_file(str(here.folder / "tokenizer.json")).encode("the dark river bank").ids
    batch = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
    onnx.save(opened.proto, tmp_path / "plain.onnx")
    for file in (artifact.path(GRAPH), tmp_path / "plain.onnx"):
        outputs = engines.load("onnxruntime", file).run(batch)
        logits = outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
        np.testing.assert_allclose(logits[0], here.model.logits(ids), atol=1e-4)
    assert isinstance(opened.task, QuestionAnswering) == (head == "QuestionAnswering")


def changed_config(place: Place, folder: Path, **fields: Any) -> Path:
    copy = Path(shutil.copytree(place.folder, folder))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **fields}))
    return copy


MISFITS = {
    "other labels": ({"id2label": {0: "no", 1: "yes"}}, r"logits \[\d+, 2\]\). Got: logits \[\d+, 3\]"),
    "other task": ({"architectures": ["BertForTokenClassification"]}, "does not give what token_classification needs"),
    "two outputs": ({"architectures": ["BertForQuestionAnswering"]}, "does not give what question_answering needs"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_graph_of_another_model_is_refused(case: str, place: Places, tmp_path: Path) -> None:
    fields, said = MISFITS[case]
    folder = changed_config(place(), tmp_path / "model", **fields)
    with pytest.raises(UserError, match=said) as caught:
        open_model(find_model(folder, place().graph, PLAIN), tmp_path / "scratch")
    assert str(place().graph) in str(caught.value)


def test_graph_with_a_smaller_table_than_the_tokenizer_is_refused(place: Places, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(place().folder, tmp_path / "model"))
    proto = onnx.load(folder / "model.onnx")
    for tensor in proto.graph.initializer:
        if tensor.name == "embeddings.weight":
            array = onnx.numpy_helper.to_array(tensor)[:9]
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    onnx.save(proto, folder / "model.onnx")
    with pytest.raises(UserError, match="does not run on what the tokenizer gives"):
        open_model(find_model(None, folder / "model.onnx", PLAIN), tmp_path / "scratch")


def test_int32_inputs_of_a_graph_are_kept(place: Places, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(place().folder, tmp_path / "model"))
    proto = onnx.load(folder / "model.onnx")
    for value in proto.graph.input:
        value.type.tensor_type.elem_type = onnx.TensorProto.INT32
    onnx.save(proto, folder / "model.onnx")
    opened = open_model(find_model(None, folder / "model.onnx", PLAIN), tmp_path / "scratch")
    assert opened.fp32.manifest.input_dtype == "int32"
