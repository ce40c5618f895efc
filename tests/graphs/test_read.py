"""Graphs of any exporter are read into one plain form that gives the same logits."""

from __future__ import annotations

import shutil
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from other_exporters import FUSIONS, batch, changed, dynamo, fuse, linears, operators, torchscript

from models import FAMILIES, ROBERTA_ITSELF, build
from tersely.engines import load
from tersely.engines.torch import INPUTS
from tersely.errors import Failure
from tersely.graphs.agree import expect_agreement
from tersely.graphs.layers import find_layers, find_products, find_tables
from tersely.graphs.read import read_graph
from tersely.models.torch_folder import load_module

QKV = ("query", "key", "value")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def module(folder):
    return load_module(build(folder / "model"))


@pytest.fixture(scope="module")
def older(folder, module):
    return torchscript(module, folder / "older.onnx", opset=14)


def read(path: Path, pad: int = 0, most: float = 1e-5) -> onnx.ModelProto:
    """Read a graph and see that it is plain and gives the file's logits."""
    proto = read_graph(path)
    onnx.checker.check_model(proto, full_check=True)
    assert not any("." in name for name in operators(proto)), operators(proto)
    assert operators(proto).isdisjoint({"Constant", "Identity"})
    assert not proto.graph.value_info
    assert len({tensor.name for tensor in proto.graph.initializer}) == len(proto.graph.initializer)
    with tempfile.TemporaryDirectory() as folder:  # the graph's own may be shared by other tests
        onnx.save(proto, Path(folder) / path.name)
        before, after = (load("onnxruntime", file, threads=1) for file in (path, Path(folder) / path.name))
    assert before.outputs == after.outputs
    for length in (9, 3):
        for first, other in zip(before.run(batch(pad, length)), after.run(batch(pad, length)), strict=True):
            assert np.abs(first - other).max() < most
    return proto


def names(module) -> dict[str, str | None]:
    return {
        f"{name}.weight": f"{name}.bias" if part.bias is not None else None for name, part in linears(module).items()
    }


def found(proto: onnx.ModelProto) -> dict[str, str | None]:
    assert not any(layer.transposed for layer in find_layers(proto))
    return {layer.name: layer.bias for layer in find_layers(proto)}


@pytest.mark.parametrize(
    "opset", [11, pytest.param(12, marks=pytest.mark.slow), pytest.param(13, marks=pytest.mark.slow), 17]
)
def test_older_exporters_graph_has_every_linear_layer_by_its_name(folder, module, opset):
    proto = read(torchscript(module, folder / f"older-{opset}.onnx", opset=opset))
    assert found(proto) == names(module)
    assert {held.version for held in proto.opset_import} == {17}
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    for name, part in linears(module).items():
        assert np.array_equal(tensors[f"{name}.weight"], part.weight.detach().numpy().T), name


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_graph_with_nothing_folded_has_its_weights_once_and_straight(tmp_path, family):
    module = load_module(build(tmp_path / "model", family))
    path = torchscript(module, tmp_path / "model.onnx", do_constant_folding=False)
    assert sum(node.op_type == "Transpose" for node in onnx.load(path).graph.node) > 8
    proto = read(path)
    assert found(proto) == names(module)
    assert sum(layer.name.endswith("attention.query.weight") for layer in find_layers(proto)) in {0, 2}


def test_graph_that_lists_its_weights_as_inputs_is_read(folder, module):
    path = torchscript(module, folder / "listed.onnx", keep_initializers_as_inputs=True)
    assert len(onnx.load(path).graph.input) > 20
    proto = read(path)
    assert [value.name for value in proto.graph.input] == list(INPUTS)
    assert found(proto) == names(module)


@pytest.mark.parametrize("kind", FUSIONS)
def test_fused_graph_is_taken_apart(folder, module, older, kind):
    path = fuse(older, folder / f"{kind}.onnx", kind)
    hidden = {name for name in operators(onnx.load(path)) if "." in name}
    wanted = {"multi_head": "MultiHeadAttention", "engine": "FusedMatMul"}.get(kind, "Attention")
    assert f"com.microsoft.{wanted}" in hidden
    proto = read(path)
    expected = names(module)
    if wanted == "Attention":  # its three projections lie in one weight
        expected = {name: bias for name, bias in expected.items() if not any(f".{part}." in name for part in QKV)}
        for layer in range(2):
            place = f"bert.encoder.layer.{layer}.attention.self.qkv"
            expected[f"{place}.weight"] = f"{place}.bias"
    assert found(proto) == expected
    assert [product.kind for product in find_products(proto)] == ["scores", "context"] * 2
    assert {table.name.split(".")[-2] for table in find_tables(proto)} == {"word_embeddings", "position_embeddings"}


def test_packed_weight_holds_query_key_and_value(folder, module, older):
    proto = read_graph(fuse(older, folder / "packed.onnx", "fused"))
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    attention = module.bert.encoder.layer[1].attention.self
    parts = [getattr(attention, part).weight.detach().numpy().T for part in QKV]
    assert np.array_equal(tensors["bert.encoder.layer.1.attention.self.qkv.weight"], np.hstack(parts))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "opset"),
    [
        *((family, 14) for family in FAMILIES if family not in ROBERTA_ITSELF),
        ("bert", 17),
        ("modernbert", 17),
        *(pytest.param(family, 14, marks=pytest.mark.long) for family in ROBERTA_ITSELF),
        *(
            pytest.param(family, 17, marks=pytest.mark.long)
            for family in FAMILIES
            if family not in ("bert", "modernbert")
        ),
    ],
)
def test_every_family_of_the_older_exporter_is_read(tmp_path, family, opset):
    module = load_module(build(tmp_path / "model", family))
    proto = read(torchscript(module, tmp_path / "model.onnx", opset=opset), module.config.pad_token_id)
    assert found(proto) == names(module)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("roberta", "fused"),
        ("distilbert", "fused"),
        ("distilbert", "engine"),
        ("albert", "fused"),
        ("albert", "engine"),
        pytest.param("roberta", "engine", marks=pytest.mark.long),
        *(pytest.param(*case, marks=pytest.mark.long) for case in product(("electra", "ernie"), ("fused", "engine"))),
    ],
)
def test_fused_graphs_of_other_families_are_read(tmp_path, family, kind):
    module = load_module(build(tmp_path / "model", family))
    graph = torchscript(module, tmp_path / "model.onnx", opset=14)
    read(fuse(graph, tmp_path / "fused.onnx", kind), module.config.pad_token_id)


@pytest.mark.slow
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_newer_exporters_graph_has_every_linear_layer_by_its_name(tmp_path, family, optimize):
    module = load_module(build(tmp_path / "model", family))
    proto = read(dynamo(module, tmp_path / "model.onnx", optimize=optimize))
    assert found(proto) == names(module)


@pytest.mark.slow
def test_our_own_graph_is_read_as_it_is(exported):
    _, folder, path = exported("bert")
    before, proto = onnx.load(path), read(path)
    assert found(proto) == names(load_module(folder))
    assert [node.op_type for node in proto.graph.node] == [node.op_type for node in before.graph.node]


def test_prefix_and_file_beside_weights_are_read(tmp_path, older):
    onnx.save_model(onnx.load(older), tmp_path / "big.v1.onnx", save_as_external_data=True, location="weights.data")
    assert read(tmp_path / "big.v1.onnx").SerializeToString() == read_graph(tmp_path / "big.v1").SerializeToString()
    shutil.copy(older, tmp_path / "no_ending")
    assert found(read_graph(str(tmp_path / "no_ending")))


def test_graph_too_large_for_one_file_comes_back_whole(older, monkeypatch):
    serialized = read_graph(older).SerializeToString()
    monkeypatch.setattr("tersely.graphs.agree._LARGE", 1000)
    assert read_graph(older).SerializeToString() == serialized


# Names and forms that only some tools give, made from the older exporter's graph.


def test_biases_that_a_tool_made_one_name_no_weight(tmp_path, older):
    def share(proto):
        zero = np.zeros(32, np.float32)
        for tensor in proto.graph.initializer:
            if tensor.name.endswith(".self.key.bias"):
                tensor.CopyFrom(numpy_helper.from_array(zero, tensor.name))
        shared = "bert.encoder.layer.0.attention.self.key.bias"
        for node in proto.graph.node:
            node.input[:] = [
                shared if name.endswith("layer.1.attention.self.key.bias") else name for name in node.input
            ]

    layers = find_layers(read(changed(older, tmp_path / "shared.onnx", share)))
    keys = [layer.name for layer in layers if ".key." in layer.name]
    assert keys == [f"bert.encoder.layer.{number}.attention.self.key.weight" for number in range(2)]


def test_numbered_biases_and_tables_are_named_after_their_module(tmp_path, older, module):
    def number(proto):
        new = {tensor.name: f"onnx::Add_{place}" for place, tensor in enumerate(proto.graph.initializer)}
        for tensor in proto.graph.initializer:
            tensor.name = new[tensor.name]
        for node in proto.graph.node:
            node.input[:] = [new.get(name, name) for name in node.input]

    proto = read(changed(older, tmp_path / "numbered.onnx", number))
    assert found(proto) == names(module)
    assert {table.name for table in find_tables(proto, smallest=1)} == {
        f"bert.embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")
    }


def test_weight_without_any_trace_of_a_module_keeps_its_number(tmp_path, older):
    def erase(proto):
        for place, node in enumerate(proto.graph.node):
            node.name = f"node_{place}"
            if node.op_type == "Add" and any(name.endswith("query.bias") for name in node.input):
                node.op_type = "Sub"  # no bias, then

    numbered = [layer.name for layer in find_layers(read(changed(older, tmp_path / "erased.onnx", erase), most=1e-4))]
    assert sum(name.startswith("onnx::MatMul_") for name in numbered) == 2


def test_table_that_is_also_multiplied_with_is_both(tmp_path, older):
    def tie(proto):
        table = "bert.embeddings.word_embeddings.weight"
        states = next(node.input[0] for node in proto.graph.node if node.name == "/bert/pooler/Gather")
        turned = helper.make_node("Transpose", [table], ["turned"], perm=[1, 0])
        proto.graph.node.extend([turned, helper.make_node("MatMul", [states, "turned"], ["words"])])
        proto.graph.output.append(helper.make_tensor_value_info("words", TensorProto.FLOAT, ["b", "l", 186]))

    proto = read(changed(older, tmp_path / "tied.onnx", tie), most=1e-4)
    assert "bert.embeddings.word_embeddings.weight.transposed" in found(proto)
    assert "bert.embeddings.word_embeddings.weight" in {table.name for table in find_tables(proto)}


def test_nodes_out_of_order_and_other_outputs_are_put_right(tmp_path, older):
    def disorder(proto):
        proto.graph.node.append(helper.make_node("ArgMax", ["logits"], ["label"], axis=1))
        proto.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["batch", 1]))
        proto.opset_import[0].domain = "ai.onnx"
        nodes = list(proto.graph.node)[::-1]
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)

    path = changed(older, tmp_path / "disorder.onnx", disorder)
    proto = read_graph(path)
    onnx.checker.check_model(proto, full_check=True)
    assert [value.name for value in proto.graph.output] == ["logits"]
    assert "ArgMax" not in operators(proto)


def test_half_precision_weights_that_the_graph_casts_are_cast_beforehand(tmp_path, older, module):
    def halve(proto):
        for tensor in list(proto.graph.initializer):
            if tensor.name.startswith("onnx::MatMul"):
                half = numpy_helper.to_array(tensor).astype(np.float16)
                name = tensor.name
                tensor.CopyFrom(numpy_helper.from_array(half, f"{name}_half"))
                proto.graph.node.insert(0, helper.make_node("Cast", [f"{name}_half"], [name], to=TensorProto.FLOAT))

    assert found(read(changed(older, tmp_path / "halved.onnx", halve))) == names(module)


def test_functions_are_written_out(tmp_path, older, module):
    def wrap(proto):
        body = [helper.make_node("Tanh", ["x"], ["y"])]
        opsets = [helper.make_opsetid("", 14)]
        proto.functions.append(helper.make_function("ours", "Bend", ["x"], ["y"], body, opsets))
        proto.opset_import.append(helper.make_opsetid("ours", 1))
        node = next(node for node in proto.graph.node if node.op_type == "Tanh")
        node.op_type, node.domain = "Bend", "ours"
        proto.ir_version = 8

    assert found(read(changed(older, tmp_path / "function.onnx", wrap))) == names(module)


def test_graph_that_was_changed_on_the_way_is_a_failure(older):
    engine = load("onnxruntime", older, threads=1)
    proto = read_graph(older)
    bias = next(tensor for tensor in proto.graph.initializer if tensor.name == "classifier.bias")
    bias.CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), bias.name))
    with pytest.raises(Failure, match=r"read wrongly: its logits are off by .*, allowed 1.0e-04"):
        expect_agreement(engine, proto, "model.onnx")
    proto.graph.node[0].op_type = "Nothing"
    with pytest.raises(Failure, match="read wrongly: ONNX Runtime cannot load"):
        expect_agreement(engine, proto, "model.onnx")
