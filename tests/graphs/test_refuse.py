"""What is no float encoder is refused: one line that says what, where and what to do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from other_exporters import changed, torchscript

from models import build
from tersely.engines.torch import INPUTS
from tersely.errors import Failure, UserError
from tersely.graphs import read
from tersely.graphs.plain import unfold
from tersely.graphs.read import read_graph
from tersely.models.torch_folder import load_module


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    return torchscript(load_module(build(folder / "model", layers=1)), folder / "older.onnx", opset=14)


def refusal(path) -> str:
    with pytest.raises(UserError) as caught:
        read_graph(path)
    message = str(caught.value)
    assert not isinstance(caught.value, Failure), message
    assert "\n" not in message
    assert message.startswith(str(path).removesuffix(".onnx"))
    return message


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "it holds no graph"), (b"PK\x03\x04 is a zip", "not an ONNX file"), (b"half", "not an ONNX file")],
)
def test_file_that_is_no_graph_is_refused(tmp_path, older, content, message):
    path = tmp_path / "model.onnx"
    content_before = older.read_bytes()
    path.write_bytes(content_before[: len(content_before) // 2] if content == b"half" else content)
    assert message in refusal(path)


def test_missing_file_and_folder_are_refused(tmp_path):
    assert "There is no such ONNX file" in refusal(tmp_path / "model")
    assert "This is a folder" in refusal(tmp_path)


def test_missing_or_cut_weights_file_is_refused(tmp_path, older):
    path = tmp_path / "model.onnx"
    onnx.save_model(onnx.load(older), path, save_as_external_data=True, location="weights.data")
    weights = (tmp_path / "weights.data").read_bytes()
    (tmp_path / "weights.data").write_bytes(weights[: len(weights) // 2])
    assert "cannot" in refusal(path)
    (tmp_path / "weights.data").unlink()
    assert "second file" in refusal(path)


def test_paddle_graph_is_refused_with_the_tool_that_converts_it(tmp_path):
    (tmp_path / "inference.pdmodel").write_bytes(b"\x00")
    assert "paddle2onnx" in refusal(tmp_path / "inference")
    assert "paddle2onnx" in refusal(tmp_path / "inference.pdmodel")


def set_weight(value: float, name: str = "bert.pooler.dense.weight"):
    def change(proto):
        tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == name)
        array = numpy_helper.to_array(tensor).copy()
        array.flat[0] = value
        tensor.CopyFrom(numpy_helper.from_array(array, name))

    return change


def set_dimension(**size):
    def change(proto):
        dimension = onnx.TensorShapeProto.Dimension(**size)
        proto.graph.input[0].type.tensor_type.shape.dim[1].CopyFrom(dimension)

    return change


def rename_input(proto):
    proto.graph.input[1].name = "position_ids"
    for node in proto.graph.node:
        node.input[:] = ["position_ids" if name == "attention_mask" else name for name in node.input]


def drop_ids(proto):
    rename = {"input_ids": "token_type_ids"}
    for node in proto.graph.node:
        node.input[:] = [rename.get(name, name) for name in node.input]
    del proto.graph.input[0]


def quantize(proto):
    scale = numpy_helper.from_array(np.float32(0.1), "scale")
    proto.graph.initializer.append(scale)
    proto.graph.node.append(helper.make_node("QuantizeLinear", ["logits", "scale"], ["codes"]))


def other_domain(proto):
    proto.graph.node.append(helper.make_node("Thing", ["logits"], ["codes"], domain="org.example"))
    proto.opset_import.append(helper.make_opsetid("org.example", 1))


def float_input(proto):
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.FLOAT


def more_axes(proto):
    proto.graph.input[0].type.tensor_type.shape.dim.add().dim_param = "third"


def no_float_output(proto):
    proto.graph.node.append(helper.make_node("ArgMax", ["logits"], ["label"], axis=1))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("label", TensorProto.INT64, ["batch", 1]))


def half(proto):
    for tensor in proto.graph.initializer:
        if tensor.name == "bert.pooler.dense.weight":
            array = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    node = next(node for node in proto.graph.node if "bert.pooler.dense.weight" in node.input)
    bias, value = node.input[2], node.input[0]
    place = list(proto.graph.node).index(node)
    proto.graph.node.insert(place, helper.make_node("Cast", [value], ["half_x"], to=TensorProto.FLOAT16))
    proto.graph.node.insert(place, helper.make_node("Cast", [bias], ["half_b"], to=TensorProto.FLOAT16))
    output, node.output[0] = node.output[0], "half_y"
    node.input[0], node.input[2] = "half_x", "half_b"
    proto.graph.node.insert(place + 3, helper.make_node("Cast", ["half_y"], [output], to=TensorProto.FLOAT))


def nan_inside(proto):
    node = next(node for node in proto.graph.node if node.op_type == "Tanh")
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(np.inf), "inf"))
    place = list(proto.graph.node).index(node)
    proto.graph.node.insert(place, helper.make_node("Mul", [node.input[0], "inf"], ["big"]))
    proto.graph.node.insert(place + 1, helper.make_node("Sub", ["big", "big"], ["nan"]))
    node.input[0] = "nan"


def too_few_positions(proto):
    name = "bert.embeddings.position_embeddings.weight"
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[:2], name))


def old(proto):
    proto.opset_import[0].version = 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename_input, "unexpected input 'position_ids'. Known: input_ids, attention_mask, token_type_ids."),
        (drop_ids, "no input 'input_ids'"),
        (float_input, "'attention_mask' is of type float. It must be int64 or int32."),
        (set_dimension(dim_value=128), "'input_ids' is of shape [input_ids_0, 128]. It must be [batch, length]"),
        (more_axes, "'input_ids' is of shape [input_ids_0, input_ids_1, third]"),
        (no_float_output, "no float output"),
        (quantize, "already quantized: it has QuantizeLinear nodes. Start from the float graph."),
        (other_domain, "Thing of 'org.example'"),
        (old, "operator set is 9, which is too old. Export it anew with opset 17 or newer."),
        (set_weight(np.nan), "'bert.pooler.dense.weight' holds NaN. Training diverged"),
        (set_weight(np.inf), "'bert.pooler.dense.weight' holds infinite values."),
        (set_weight(-np.inf, "classifier.bias"), "'classifier.bias' holds infinite values."),
        (half, "'bert.pooler.dense.weight' is float16. Export the graph anew in float32."),
        (nan_inside, "The graph gives NaN."),
        (too_few_positions, "ONNX Runtime cannot run this graph"),
    ],
    ids=lambda value: getattr(value, "__name__", value)[:30],
)
def test_graph_that_is_no_float_encoder_is_refused(tmp_path, older, change, message):
    assert message in refusal(changed(older, tmp_path / "model.onnx", change))


def test_free_sizes_written_as_minus_one_are_free(tmp_path, older):
    read_graph(changed(older, tmp_path / "model.onnx", set_dimension(dim_value=-1)))


def test_graph_that_cannot_be_raised_is_refused():
    text = '<ir_version: 7, opset_import: ["": 12]> g (float[n, 2] x) => (float[n, 2] y) { y = Thing (x) }'
    with pytest.raises(UserError, match=r"operator set is 12 and cannot be raised. Export it anew with opset 17"):
        unfold(onnx.parser.parse_model(text), "model.onnx")


def test_known_inputs_are_those_that_engines_are_fed():
    assert read.INPUTS == INPUTS
