"""The repository's description, parsed by Triton's own schema, says what the ONNX graph itself says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import onnx
import pytest
import tritonclient
from google.protobuf import text_format

import tiny_artifacts
from compressible import Stack
from tersely.artifact import Graph, read
from tersely.deploy.layouts import TritonLayout, lay_out
from tersely.deploy.layouts.triton import config
from tersely.errors import UserError

TYPES = {
    onnx.TensorProto.INT64: "TYPE_INT64",
    onnx.TensorProto.INT32: "TYPE_INT32",
    onnx.TensorProto.FLOAT: "TYPE_FP32",
}


def schema() -> Any:
    """Triton's `model_config.proto`, as its client ships it. (By path: the package around it asks for gRPC.)"""
    place = Path(tritonclient.__file__).parent / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCHEMA = schema()


def parsed(text: str) -> Any:
    return text_format.Parse(text, SCHEMA.ModelConfig())


def described(tensors: Any) -> dict[str, tuple[str, list[int]]]:
    return {tensor.name: (SCHEMA.DataType.Name(tensor.data_type), list(tensor.dims)) for tensor in tensors}


def declared(values: Any) -> dict[str, tuple[str, list[int]]]:
    """Names, types and dimensions of a graph, without the batch's."""
    found = {}
    for value in values:
        tensor = value.type.tensor_type
        sizes = [size.dim_value if size.HasField("dim_value") else -1 for size in tensor.shape.dim]
        found[value.name] = (TYPES[tensor.elem_type], sizes[1:])
    return found


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_description_is_the_graphs_own(head: str, tmp_path: Path) -> None:
    Stack(50, head, 1, None, 0).write(tmp_path / "model.onnx")
    found = parsed(config("reader", tmp_path / "model.onnx"))
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert described(found.input) == declared(graph.input)
    assert described(found.output) == declared(graph.output)
    assert (found.name, found.backend, found.max_batch_size) == ("reader", "onnxruntime", 64)
    assert found.dynamic_batching.max_queue_delay_microseconds == 2000
    assert [SCHEMA.ModelInstanceGroup.Kind.Name(group.kind) for group in found.instance_group] == ["KIND_CPU"]


@pytest.mark.parametrize("kind", ["text", "labels", "tags", "question"])
def test_repository_has_triton_s_layout_and_the_labels_of_a_classifier(kind: str, tmp_path: Path) -> None:
    parent = read(tiny_artifacts.make(tmp_path / "artifact", kind))
    laid = lay_out(parent, tmp_path / "models", TritonLayout("reader")).artifact
    assert laid.folder == tmp_path / "models" / "reader"
    assert (laid.folder / "1" / "model.onnx").read_bytes() == parent.path("onnx/model.onnx").read_bytes()
    found = parsed((laid.folder / "config.pbtxt").read_text())
    assert found.name == laid.folder.name
    named = {tensor.label_filename for tensor in found.output}
    if kind == "text":
        assert named == {"labels.txt"}
        assert (laid.folder / "labels.txt").read_text().splitlines() == ["bad", "fair", "good"]
    else:
        assert named == {""}
        assert not (laid.folder / "labels.txt").exists()


def test_int8_artifact_gives_its_self_contained_graph(tmp_path: Path) -> None:
    parent = read(tiny_artifacts.make_int8(tmp_path / "artifact"))
    own, shared = parent.manifest.graphs
    leaning = Graph(own.path, own.engines, "int8", data=(shared.path,))
    tiny_artifacts.reseal(parent.folder, graphs=(leaning, shared))
    laid = lay_out(read(parent.folder), tmp_path / "models", TritonLayout("int8")).artifact
    assert sorted(path.name for path in (laid.folder / "1").iterdir()) == ["model.onnx"]
    written = onnx.load(laid.folder / "1" / "model.onnx", load_external_data=False)
    assert not any(tensor.external_data for tensor in written.graph.initializer)
    assert (laid.folder / "1" / "model.onnx").read_bytes() == parent.path(shared.path).read_bytes()


def test_weights_beside_the_graph_come_along(tmp_path: Path) -> None:
    folder = tiny_artifacts.make(tmp_path / "artifact")
    model = onnx.load(folder / "onnx/model.onnx")
    (folder / "onnx/model.onnx").unlink()
    onnx.save_model(model, folder / "onnx/model.onnx", save_as_external_data=True, location="model.onnx.data")
    graph = Graph("onnx/model.onnx", ("onnxruntime",), "fp32", data=("onnx/model.onnx.data",))
    tiny_artifacts.reseal(folder, graphs=(graph,))
    laid = lay_out(read(folder), tmp_path / "models", TritonLayout("large")).artifact
    assert laid.manifest.graphs[0].data == ("1/model.onnx.data",)
    assert sorted(path.name for path in (laid.folder / "1").iterdir()) == ["model.onnx", "model.onnx.data"]


def test_other_models_of_the_repository_are_left_alone(tmp_path: Path) -> None:
    parent = read(tiny_artifacts.make(tmp_path / "artifact"))
    (tmp_path / "models" / "theirs" / "1").mkdir(parents=True)
    (tmp_path / "models" / "theirs" / "config.pbtxt").write_text('name: "theirs"\n')
    lay_out(parent, tmp_path / "models", TritonLayout("ours"))
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["ours", "theirs"]
    assert (tmp_path / "models" / "theirs" / "config.pbtxt").read_text() == 'name: "theirs"\n'


@pytest.mark.parametrize("name", ["my model", "../up", "", ".hidden", 'a"b'])
def test_name_that_is_no_folder_of_a_repository_is_refused(name: str, tmp_path: Path) -> None:
    parent = read(tiny_artifacts.make(tmp_path / "artifact"))
    with pytest.raises(UserError, match="letters, digits"):
        lay_out(parent, tmp_path / "models", TritonLayout(name))
    assert not (tmp_path / "models").exists()


def test_graph_of_a_fixed_batch_takes_one_request_at_a_time(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> m (int32[1, n] ids) => (float[1, n] y) { y = Cast<to = 1>(ids) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    found = parsed(config("fixed", tmp_path / "model.onnx"))
    assert found.max_batch_size == 0
    assert not found.HasField("dynamic_batching")
    assert described(found.input) == {"ids": ("TYPE_INT32", [1, -1])}
    assert described(found.output) == {"y": ("TYPE_FP32", [1, -1])}


def test_type_that_triton_has_no_word_for_here_is_refused(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> m (string[n] words) => (string[n] y) { y = Identity(words) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    with pytest.raises(UserError, match=r"'words' is of type tensor\(string\)"):
        config("words", tmp_path / "model.onnx")
